"""Models of a given signature: real names, axes and types, with arithmetic that we made up.

    in x f32 [B=batch, T=time, 8]
    state mem -> mem_out f32 [B=batch, 4, 8]
    state past -> present f16 [B=batch, 2, P=past, 4] -> [B=batch, 2, P+T=total, 4]
    out y f32 [B=batch, T'=]

A dimension is a number, or ROLE=NAME of a dynamic axis, with or without a name; ROLE=1 is an axis that was exported as 1.
B is the batch, T what a request is long, T' what is left of that after a convolution, P the length of a cache and P+T
the same after the request; other letters are other extents. What every output says depends on all inputs and states and
on the order of what is in them, within a lane: a wrong axis changes the numbers.
"""

import re
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, TensorProto, helper

import graphs
from randomgraph import Graph
from servedcase import Case, Sequence, Tensors

TYPES = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "u8": np.uint8, "bool": np.bool_}
LINE = re.compile(r"(in|out|state) (\S+)(?: -> (\S+))? (\w+) \[(.*?)\](?: -> \[(.*?)\])?$")
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Tensor:
    """An input or output. Roles of fixed extents are "" and sizes have them; B may be fixed, too."""

    name: str
    dtype: type
    roles: tuple[str, ...]
    sizes: tuple[int | None, ...]
    names: tuple[str | None, ...]

    @classmethod
    def parse(cls, name: str, kind: str, dims: str) -> "Tensor":
        roles, sizes, names = [], [], []
        for dim in filter(None, map(str.strip, dims.split(","))):
            role, equals, label = dim.partition("=")
            fixed = role if not equals else label
            roles.append(role if equals else "")
            sizes.append(int(fixed) if fixed.isdigit() else None)
            names.append(None if fixed.isdigit() else label or None)
        return cls(name, TYPES[kind], tuple(roles), tuple(sizes), tuple(names))

    @property
    def batch(self) -> int | None:
        return self.roles.index("B") if "B" in self.roles else None

    @property
    def time(self) -> int | None:
        """The axis along which it is as long as the request, or grows."""
        return next((axis for axis, role in enumerate(self.roles) if role in ("T", "T'", "P", "P+T")), None)

    def info(self):
        dims = [size if size is not None else name for size, name in zip(self.sizes, self.names)]
        return graphs.tensor(self.name, self.dtype, *dims)

    def shape(self, extents: dict[str, int]) -> tuple[int, ...]:
        return tuple(extents[role] if size is None else size for role, size in zip(self.roles, self.sizes))


@dataclass
class Signature:
    """The tensors of a model.

    kernel   how much of the time a convolution in front needs, with its stride
    solo     the model has a Reshape that takes one lane only
    int8     what is computed is quantized dynamically, with one scale for all lanes
    """

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    states: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    kernel: int = 1
    stride: int = 1
    solo: bool = False
    int8: bool = False

    @classmethod
    def parse(cls, text: str, **more) -> "Signature":
        made = cls(**more)
        for line in filter(None, map(str.strip, text.splitlines())):
            found = LINE.match(line)
            assert found, f"not understood: {line}"
            what, name, other, kind, dims, after = found.groups()
            tensor = Tensor.parse(name, kind, dims)
            if what == "state":
                made.states.append((tensor, Tensor.parse(other, kind, dims if after is None else after)))
            else:
                (made.inputs if what == "in" else made.outputs).append(tensor)
        return made

    @property
    def all_inputs(self) -> list[Tensor]:
        return self.inputs + [into for into, _ in self.states]

    @property
    def all_outputs(self) -> list[Tensor]:
        return self.outputs + [out for _, out in self.states]

    @property
    def batch(self) -> dict[str, int | None]:
        return {tensor.name: tensor.batch for tensor in self.all_inputs + self.all_outputs}

    def initial(self, lengths: dict[str, int]) -> Tensors:
        """What the states begin with: zeros, with these lengths and else none."""
        every = {role: 0 for into, _ in self.states for role in into.roles} | lengths | {"B": 1}
        return {into.name: np.zeros(into.shape(every), into.dtype) for into, _ in self.states}

    def model(self) -> ModelProto:
        return Writer(self).write()


class Writer:
    """Writes the graph. A lane is told by one number, made of all that it was given; time has a number for each step."""

    def __init__(self, signature: Signature):
        self.signature = signature
        self.g = Graph(np.random.default_rng(5))
        self.weight = 0.5

    def write(self) -> ModelProto:
        g, s = self.g, self.signature
        floats = {tensor.name: self.lanes_first(tensor, g.cast(tensor.name, FLOAT)) for tensor in s.inputs}
        steps = next((t for t in s.inputs if "T" in t.roles), None)
        self.steps = self.over_time(steps, floats[steps.name]) if steps else ""
        if steps and s.kernel > 1:
            floats[steps.name] = self.steps
        after = [self.next_of(into, out) for into, out in s.states if self.grows(into, out)]
        told = [self.told(value) for value in [*floats.values(), *after]]
        told += [
            self.told(self.lanes_first(into, g.cast(into.name, FLOAT)))
            for into, out in s.states if not self.grows(into, out)
        ]  # fmt: skip
        self.lane = told[0]
        for one in told[1:]:
            self.lane = g.op("Add", self.lane, one)
        if s.solo:
            self.lane = g.op("Reshape", self.lane, g.constant([1, 1]))
        if s.int8:
            parts = ["quantized", "scale", "zero_point"]
            g.nodes.append(helper.make_node("DynamicQuantizeLinear", [self.lane], parts))
            self.lane = g.op("DequantizeLinear", *parts)
        for into, out in s.states:
            if not self.grows(into, out):
                self.next_of(into, out)
        for tensor in s.outputs:
            self.output(tensor)
        inputs, outputs = [t.info() for t in s.all_inputs], [t.info() for t in s.all_outputs]
        return g.finished(inputs, outputs)

    def grows(self, into: Tensor, out: Tensor) -> bool:
        return "P" in into.roles and "P+T" in out.roles

    def order(self, tensor: Tensor) -> list[int]:
        """Its axes with the batch in front and then time."""
        first = [axis for axis in (tensor.batch, tensor.time) if axis is not None]
        return first + [axis for axis in range(len(tensor.roles)) if axis not in first]

    def lanes_first(self, tensor: Tensor, value: str) -> str:
        """[batch, ...], with time right after the batch."""
        order = self.order(tensor)
        if order != sorted(order):
            value = self.g.op("Transpose", value, perm=order)
        if tensor.batch is None:
            value = self.g.op("Unsqueeze", value, self.g.constant([0]))
        return value

    def as_declared(self, tensor: Tensor, value: str) -> None:
        """The other way round, in the tensor's type."""
        order = self.order(tensor)
        if tensor.batch is None:
            value = self.g.op("ReduceMean", value, axes=[0], keepdims=0)
        if order != sorted(order):
            value = self.g.op("Transpose", value, perm=[order.index(axis) for axis in range(len(order))])
        if graphs.onnx_type(tensor.dtype) != FLOAT:
            value = self.g.op("Round", value)
        self.g.op("Cast", value, result=tensor.name, to=graphs.onnx_type(tensor.dtype))

    def over_time(self, tensor: Tensor, value: str) -> str:
        """[batch, time] of an input, after the convolution."""
        axes = list(range(2, len(tensor.roles) + (tensor.batch is None)))
        if axes:
            value = self.g.op("ReduceMean", value, axes=axes, keepdims=0)
        if self.signature.kernel > 1:
            value = self.g.op("Unsqueeze", value, self.g.constant([2]))
            value = self.g.convolve(value, 1, self.signature.kernel, self.signature.stride)
            value = self.g.op("Squeeze", value, self.g.constant([2]))
        return self.g.op("CumSum", value, self.g.constant(1))

    def told(self, value: str) -> str:
        """[batch, 1]: all that is in a lane, in its order. A cache may be empty."""
        g = self.g
        flat = g.op("CumSum", g.op("Flatten", value, axis=1), g.constant(1))
        length = g.cast(g.op("Slice", g.op("Shape", flat), g.constant([1]), g.constant([2])), FLOAT)
        many = g.op("Pow", g.op("Add", length, g.constant(np.float32(1))), g.constant(np.float32(1.5)))
        self.weight = self.weight * 0.8 + 0.2
        mean = g.op("Div", g.op("ReduceSum", flat, g.constant([1]), keepdims=1), many)
        return g.op("Mul", mean, g.constant(np.float32(self.weight)))

    def spread(self, value: str, axes: int, count: int) -> str:
        """[batch, ...] with further axes of 1."""
        return self.g.op("Unsqueeze", value, self.g.constant(list(range(axes, count)))) if count > axes else value

    def ramp(self, tensor: Tensor, whole: list[int]) -> str:
        """Weights along the fixed axes, different for each element."""
        shape = [tensor.sizes[axis] if tensor.roles[axis] == "" else 1 for axis in whole]
        shape = [1] * (tensor.batch is None) + shape
        return self.g.constant(np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape))

    def next_of(self, into: Tensor, out: Tensor) -> str:
        """The state's output, which is half of what it was and what the lane says; or what it was and the new steps."""
        g, rank = self.g, len(into.roles) + (into.batch is None)
        value = self.lanes_first(into, g.cast(into.name, FLOAT))
        if self.grows(into, out):
            new = g.op("Mul", self.spread(self.steps, 2, rank), self.ramp(into, self.order(into)))
            value = g.op("Concat", value, new, axis=1)
        elif into.dtype is np.bool_:
            value = g.op("Sub", g.constant(np.float32(1)), value)
        elif into.dtype in (np.int64, np.int32):
            value = g.op("Add", value, g.constant(np.float32(1)))
        else:
            lane = self.spread(self.squeezed(rank), min(rank, 2), rank)
            lane = g.op("Mul", lane, self.ramp(into, self.order(into)))
            value = g.op("Add", g.op("Mul", value, g.constant(np.float32(0.5))), lane)
        self.as_declared(out, value)
        return value

    def squeezed(self, rank: int) -> str:
        return self.g.op("Squeeze", self.lane, self.g.constant([1])) if rank == 1 else self.lane

    def output(self, tensor: Tensor) -> None:
        g, rank = self.g, len(tensor.roles) + (tensor.batch is None)
        timed = tensor.time is not None
        if timed:
            value = self.spread(g.op("Add", self.steps, self.lane), 2, rank)
        else:
            value = self.spread(self.squeezed(rank), min(rank, 2), rank)
        self.as_declared(tensor, g.op("Mul", value, self.ramp(tensor, self.order(tensor))))


def requests(signature: Signature, lengths: list[int], count: int, extents: dict[str, int], given: tuple[str, ...] = ()):
    """Sequences of requests of these lengths; the numbers differ from one to the other."""
    random = np.random.default_rng(11)
    made: list[Sequence] = []
    for _ in range(count):
        past, steps = extents.get("P", 0), []
        for length in lengths:
            now = extents | {"B": 1, "T": length, "P": past, "P+T": past + length}
            steps.append({t.name: sent(random, t, now) for t in signature.inputs if t.name not in given})
            past += length
        made.append(steps)
    return made


def sent(random: np.random.Generator, tensor: Tensor, extents: dict[str, int]) -> np.ndarray:
    shape = tensor.shape(extents)
    if tensor.dtype is np.bool_:
        return random.random(shape) < 0.5
    if np.issubdtype(tensor.dtype, np.integer):
        return np.asarray(random.integers(1, 9, shape)).astype(tensor.dtype)
    return np.asarray(random.standard_normal(shape)).astype(tensor.dtype)


THREE_LINES = """
backend: "stateful"
sequence_batching { oldest { max_candidate_sequences: 32 max_queue_delay_microseconds: 5000 } }
"""


def family(
    name: str, text: str, config: str = THREE_LINES, *, kernel: int = 1, stride: int = 1, solo: bool = False,
    int8: bool = False, lengths: tuple[int, ...] = (5, 5, 4), extents: dict[str, int] | None = None, begins: dict[str, int] | None = None,
    sequences: int = 4, constants: Tensors | None = None, filled: tuple[str, ...] = (), **more,
) -> Case:  # fmt: skip
    """A model of that signature, and sequences for it, requests of which have these lengths.

    extents    of what is dynamic and neither batch nor time
    begins     what extents states begin with
    constants  inputs that the backend fills with constant_inputs
    filled     inputs that the backend fills with what the argument given says
    """
    signature = Signature.parse(text, kernel=kernel, stride=stride, solo=solo, int8=int8)
    constants = constants or {}
    every = (extents or {}) | (begins or {})
    defaults = {
        "sequences": requests(signature, [*lengths], sequences, every, (*constants, *filled)),
        "initial": signature.initial(every),
        "states": {into.name: out.name for into, out in signature.states},
        "outputs": tuple(tensor.name for tensor in signature.outputs) or tuple(out.name for _, out in signature.states),
        "model": more.get("model") or signature.model(),
        "batch": signature.batch,
        "fixed": any(t.batch is not None and t.sizes[t.batch] == 1 for t in signature.all_inputs),
    }
    if constants:
        defaults["given"] = lambda requests: constants
    return Case(name=name, config=config, **(defaults | more))
