"""Graphs of random models, put together from parts that keep the lanes of a batch isolated.

Inside, every value is [batch, time, channels]. Inputs are brought to that from whatever layout they have, and outputs
from that to theirs, so that the batch can stand on any axis of any tensor.
"""

from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

import graphs
from axisnames import BATCH, OUT_TIME, PAST, PRESENT, TIME, Names, Spec

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LAYER, CHANNEL = "L", "C"  # further roles of axes, of fixed size
INSIDE = {BATCH: 0, TIME: 1, OUT_TIME: 1, PAST: 1, PRESENT: 1, "K": 1, CHANNEL: 2}
END = 2**31 - 1


@dataclass
class Graph:
    """Nodes that are added one by one; every method returns the name of the value that it makes."""

    random: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, result: str = "", **attributes) -> str:
        name = result or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def numbers(self, *shape: int, scale: float = 1.0) -> str:
        """Random weights."""
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def cast(self, value: str, to: int) -> str:
        return self.op("Cast", value, to=to)

    def mean(self, value: str, *axes: int) -> str:
        return self.op("ReduceMean", value, axes=list(axes), keepdims=1)

    def last(self, value: str, count: int) -> str:
        """The last ones along time."""
        return self.op("Slice", value, self.constant([-count]), self.constant([END]), self.constant([1]))

    def inside(self, spec: Spec, value: str = "") -> str:
        """A tensor of the model as [batch, time, channels], in its own type. Layers are averaged, as floats."""
        value = value or spec.name
        roles = list(spec.roles)
        if LAYER in roles:
            at = roles.index(LAYER)
            value = self.op("ReduceMean", value, axes=[at], keepdims=0)
            roles.remove(LAYER)
        order = sorted(range(len(roles)), key=lambda axis: INSIDE[roles[axis]])
        if order != sorted(order):
            value = self.op("Transpose", value, perm=order)
        missing = sorted({0, 1, 2} - {INSIDE[role] for role in roles})
        if missing:
            value = self.op("Unsqueeze", value, self.constant(missing))
        return value

    def outside(self, spec: Spec, value: str) -> str:
        """[batch, time, channels] as a tensor of the model. What the tensor has no axis for has an extent of 1."""
        roles = [role for role in spec.roles if role != LAYER]
        missing = sorted({0, 1, 2} - {INSIDE[role] for role in roles})
        if missing:
            value = self.op("Squeeze", value, self.constant(missing))
        inner = sorted(roles, key=INSIDE.__getitem__)
        if inner != roles:
            value = self.op("Transpose", value, perm=[inner.index(role) for role in roles])
        if LAYER in spec.roles:
            at, layers = spec.roles.index(LAYER), spec.sizes[LAYER]
            value = self.op("Unsqueeze", value, self.constant([at]))
            shape = [1] * len(spec.roles)
            shape[at] = layers
            weights = np.linspace(0.8, 1.2, layers, dtype=np.float32).reshape(shape)
            value = self.op("Mul", value, self.constant(weights))
        return self.op("Identity", value, result=spec.name)

    def convolve(self, value: str, channels: int, kernel: int, stride: int = 1) -> str:
        """Over time, each channel for itself, without padding."""
        value = self.op("Transpose", value, perm=[0, 2, 1])
        weights = self.numbers(channels, 1, kernel, scale=kernel**-0.5)
        value = self.op("Conv", value, weights, group=channels, kernel_shape=[kernel], strides=[stride])
        return self.op("Transpose", value, perm=[0, 2, 1])

    def model(self, inputs: list[Spec], outputs: list[Spec], names: Names) -> ModelProto:
        return self.finished([info(spec, names) for spec in inputs], [info(spec, names) for spec in outputs])

    def finished(self, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> ModelProto:
        """The model of these nodes."""
        return graphs.model(*self.nodes, inputs=inputs, outputs=outputs, constants=self.constants)


def info(spec: Spec, names: Names) -> ValueInfoProto:
    dims = [spec.sizes.get(role, name) for role, name in zip(spec.roles, names[spec.name], strict=True)]
    return graphs.tensor(spec.name, spec.dtype, *dims)
