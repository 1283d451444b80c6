"""Makes the models of the benchmarks: python internal/bench/models/models.py FOLDER

Each becomes a folder NAME with 1/model.onnx, config.pbtxt for a server, and config.json, which is the same as Triton
hands it to a backend (for the step benchmark, which has no Triton). Weights are random, always the same.

accumulate_fp32  the example model: next to no work, one state of 20 bytes
lstm2x512        2 layers of LSTM with 512 units, 80 features a request: 6.6 MFLOP, states h and c as [layers, batch, units]
kvring           the last 128 vectors of 1024 numbers and their mean: 0.5 MB of state [batch, 128, 1024], hardly any work
tokens           a vocabulary of 8, two layers of 2048 x 2048 and a running sum: a token of 8 or more makes a run fail
zipformer97      97 states, 1.9 MB, laid out as a streaming Zipformer's (48 have the batch after the time axis), and 16
                 blocks of matrix products over 16 frames: about 0.5 GFLOP a request, a quarter of the real model's
"""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from google.protobuf import json_format, text_format
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tritonclient.grpc import model_config_pb2

ROOT = Path(__file__).resolve().parents[3]
OPSET = 17
IR_VERSION = 8

MAX_BATCH = 64
CANDIDATES = 1280  # slots for sequences

Shape = list[int | str]


@dataclass
class Graph:
    """A graph in the making. Every tensor is float32, but for inputs of indices, and its batch axis is called "batch"."""

    name: str
    inputs: dict[str, Shape] = field(default_factory=dict)
    outputs: dict[str, Shape] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)  # input and output of each state
    indices: set[str] = field(default_factory=set)  # inputs of int64
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> str:
        """Adds an operator and returns the name of its first output; the others have .1, .2 ... appended."""
        name = f"{op}_{len(self.nodes)}"
        names = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int) -> str:
        """Random numbers so small that nothing grows from step to step."""
        return self.constant((self.random.standard_normal(shape) / np.sqrt(4 * shape[-2])).astype(np.float32))

    def slice(self, of: str, axis: int, begin: int, end: int = 2**31) -> str:
        return self.node("Slice", of, *(self.integers(n) for n in (begin, end, axis)))

    def result(self, name: str, shape: Shape, tensor: str) -> None:
        self.nodes.append(helper.make_node("Identity", [tensor], [name]))
        self.outputs[name] = shape

    def state(self, name: str, shape: Shape) -> str:
        self.inputs[name] = shape
        return name

    def keep(self, state: str, tensor: str) -> None:
        """Makes a tensor the new value of a state. The operator that makes it writes it: there is no copy."""
        new = f"new_{state}"
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == tensor:
                        names[i] = new
        self.outputs[new] = self.inputs[state]
        self.states[state] = new

    def model(self) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        types = {name: TensorProto.INT64 for name in self.indices}
        inputs = [value(name, types.get(name, TensorProto.FLOAT), shape) for name, shape in self.inputs.items()]
        outputs = [value(name, TensorProto.FLOAT, shape) for name, shape in self.outputs.items()]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.constants)
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])
        onnx.checker.check_model(model, full_check=True)
        return model


def lstm2x512() -> Graph:
    g = Graph("lstm2x512", inputs={"x": ["batch", 80]})
    h, c = (g.state(name, [2, "batch", 512]) for name in "hc")
    frames = g.node("Unsqueeze", "x", g.integers(0))  # [time, batch, features]
    ends = []
    for layer, features in enumerate((80, 512)):
        weights, recurrent = g.weights(1, 4 * 512, features), g.weights(1, 4 * 512, 512)
        before = [g.slice(state, 0, layer, layer + 1) for state in (h, c)]
        end = g.node("LSTM", frames, weights, recurrent, "", "", *before, outputs=3, hidden_size=512)
        frames = g.node("Squeeze", end, g.integers(1))  # one direction
        ends.append(end)
    g.keep(h, g.node("Concat", *(f"{end}.1" for end in ends), axis=0))
    g.keep(c, g.node("Concat", *(f"{end}.2" for end in ends), axis=0))
    g.result("y", ["batch", 512], g.node("Squeeze", frames, g.integers(0)))
    return g


def kvring() -> Graph:
    g = Graph("kvring", inputs={"x": ["batch", 1024]})
    ring = g.state("ring", ["batch", 128, 1024])
    newest = g.node("Unsqueeze", "x", g.integers(1))
    g.keep(ring, g.node("Concat", g.slice(ring, 1, 1), newest, axis=1))
    g.result("y", ["batch", 1024], g.node("ReduceMean", "new_ring", axes=[1], keepdims=0))
    return g


def tokens() -> Graph:
    g = Graph("tokens", inputs={"token": ["batch", 1]}, indices={"token"})
    total = g.state("sum", ["batch", 8])
    x = g.node("Gather", g.weights(8, 2048), g.node("Squeeze", "token", g.integers(1)))
    for _ in range(2):
        x = g.node("Relu", g.node("MatMul", x, g.weights(2048, 2048)))
    g.keep(total, g.node("Add", total, g.slice(x, 1, 0, 8)))
    g.result("y", ["batch", 8], f"new_{total}")
    return g


def zipformer97() -> Graph:
    frames, width = 16, 384
    g = Graph("zipformer97", inputs={"x": ["batch", frames, width]})
    embed = g.state("embed", ["batch", 128, 3, 19])
    g.keep(embed, g.node("Neg", embed))
    x = "x"
    for layer in range(16):
        x = zipformer_block(g, layer, x, frames, width)
    g.result("y", ["batch", frames, width], x)
    return g


def zipformer_block(g: Graph, layer: int, x: str, frames: int, width: int) -> str:
    """One block: caches of keys and values move on by the new frames, and matrix products over the frames."""
    past = 64
    for name, size in (("key", 128), ("val1", 48), ("val2", 48)):  # [time, batch, size]
        cache = g.state(f"{name}_{layer}", [past, "batch", size])
        new = g.node("Transpose", g.node("MatMul", x, g.weights(width, size)), perm=[1, 0, 2])
        g.keep(cache, g.node("Concat", g.slice(cache, 0, frames), new, axis=0))
    cache = g.state(f"nonlin_{layer}", [1, "batch", past, 144])
    new = g.node("Unsqueeze", g.node("MatMul", x, g.weights(width, 144)), g.integers(0))
    g.keep(cache, g.node("Concat", g.slice(cache, 2, frames), new, axis=2))
    for name in ("conv1", "conv2"):  # the frames before, for a convolution over time
        cache = g.state(f"{name}_{layer}", ["batch", 192, 15])
        new = g.node("Transpose", g.node("MatMul", x, g.weights(width, 192)), perm=[0, 2, 1])
        both = g.node("Concat", cache, new, axis=2)
        g.keep(cache, g.slice(both, 2, frames))
    attended = g.node("ReduceMean", f"new_key_{layer}", axes=[0], keepdims=0)  # [batch, 128]
    attended = g.node("Unsqueeze", g.node("MatMul", attended, g.weights(128, width)), g.integers(1))
    x = g.node("Add", x, attended)
    wide = g.node("Relu", g.node("MatMul", x, g.weights(width, 1024)))
    return g.node("Add", g.node("Mul", x, g.constant(np.float32(0.5))), g.node("MatMul", wide, g.weights(1024, width)))


def config_of(g: Graph) -> model_config_pb2.ModelConfig:
    """The configuration of a graph: every request brings one lane, and the batch is Triton's."""
    config = model_config_pb2.ModelConfig(name=g.name, backend="stateful", max_batch_size=MAX_BATCH)
    states = {*g.states, *g.states.values()}
    for tensors, of_config in ((g.inputs, config.input), (g.outputs, config.output)):
        for name, shape in tensors.items():
            if name not in states:
                data_type = model_config_pb2.TYPE_INT64 if name in g.indices else model_config_pb2.TYPE_FP32
                of_config.add(name=name, data_type=data_type, dims=shape[1:])
    pairs = ", ".join(f"<<<{before}, {after}>>>" for before, after in g.states.items())
    config.parameters["state_pairs"].string_value = pairs
    return config


def accumulate_config() -> model_config_pb2.ModelConfig:
    text = (ROOT / "models" / "accumulate_fp32" / "config.pbtxt").read_text()
    example = text_format.Parse(text, model_config_pb2.ModelConfig())
    config = model_config_pb2.ModelConfig(name="accumulate_fp32", backend="stateful", max_batch_size=MAX_BATCH)
    config.input.extend(example.input)
    config.output.extend(example.output)
    config.sequence_batching.control_input.extend(example.sequence_batching.control_input)
    config.parameters["state_pairs"].CopyFrom(example.parameters["state_pairs"])
    return config


def complete(config: model_config_pb2.ModelConfig) -> None:
    """What is the same for all models."""
    config.sequence_batching.max_sequence_idle_microseconds = 600_000_000
    config.sequence_batching.oldest.max_candidate_sequences = CANDIDATES
    config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    config.parameters["intra_op_threads"].string_value = "1"
    config.parameters["logging_level"].string_value = "NONE"


def as_triton(message) -> str:
    """A configuration as JSON. Protobuf makes texts of 64-bit numbers, Triton does not."""

    def numbers(value):
        if isinstance(value, dict):
            return {key: value[key] if key == "string_value" else numbers(value[key]) for key in value}
        if isinstance(value, list):
            return [numbers(element) for element in value]
        return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value

    everything = json_format.MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return json.dumps(numbers(everything), indent=1)


def write(folder: Path, config: model_config_pb2.ModelConfig, put_model: Callable[[Path], None]) -> None:
    complete(config)
    version = folder / config.name / "1"
    version.mkdir(parents=True, exist_ok=True)
    put_model(version / "model.onnx")
    (version.parent / "config.pbtxt").write_text(text_format.MessageToString(config))
    (version.parent / "config.json").write_text(as_triton(config))


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    example = ROOT / "models" / "accumulate_fp32" / "1" / "model.onnx"
    write(folder, accumulate_config(), lambda path: shutil.copyfile(example, path))
    for make in (lstm2x512, kvring, tokens, zipformer97):
        graph = make()
        write(folder, config_of(graph), lambda path: onnx.save(graph.model(), path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
