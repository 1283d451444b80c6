"""ONNX graphs under construction, for the streaming example models and for those of the benchmarks."""

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


class Graph:
    """A graph under construction. It chooses the names of intermediate values. Random numbers come from the seed, so that
    the bytes of a model are the same every time."""

    def __init__(self, name: str, seed: int):
        self.name = name
        self.inputs, self.outputs = [], []
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.random = np.random.default_rng(seed)

    def input(self, name: str, onnx_type: int, *dims: int | str) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type, dims))
        return name

    def output(self, value: str, name: str, onnx_type: int, *dims: int | str) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, onnx_type, dims))

    def constant(self, value, dtype=np.int64) -> str:
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def op(self, kind: str, *values: str, outputs: int = 1, **attributes):
        """Adds a node; returns the name of its output, or a list of names."""
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, values, names, **attributes))
        return names[0] if outputs == 1 else names

    def slice(self, value: str, start: int, end: int, axis: int) -> str:
        return self.op("Slice", value, *(self.constant([number]) for number in (start, end, axis)))

    def model(self) -> ModelProto:
        """Returns the whole model, checked."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers)
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])
        onnx.checker.check_model(model, full_check=True)
        return model
