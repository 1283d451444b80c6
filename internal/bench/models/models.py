"""Makes the models of the benchmarks: python internal/bench/models/models.py FOLDER [NAME...]

Without names it makes all. Each becomes a folder NAME with 1/model.onnx, config.pbtxt for a server, and config.json, which is the same as Triton
hands it to a backend (for the step benchmark, which has no Triton). Weights are random, always the same.

accumulate_fp32  the example model: next to no work, one state of 20 bytes
lstm2x512        2 layers of LSTM with 512 units, 80 features a request: 6.6 MFLOP, states h and c as [layers, batch, units]
lstm5x512        a streaming acoustic model: 5 layers of LSTM with 512 units and 500 outputs over 4 frames of 80 features a
                 request: 39 MB of weights, 79 MFLOP, states h and c of 10 KB each
silero_vad       Silero VAD of the PyPI package silero-vad, with its sampling rate fixed at 16 kHz, so that backends need not
                 provide it: 2.3 MB, one state [2, batch, 128]; left out, with a message, if the package is not installed
kvring           the last 128 vectors of 1024 numbers and their mean: 0.5 MB of state [batch, 128, 1024], hardly any work
tokens           a vocabulary of 8, two layers of 2048 x 2048 and a running sum: a token of 8 or more makes a run fail
zipformer97      97 states, 1.9 MB, laid out as a streaming Zipformer's (48 have the batch after the time axis), and 16
                 blocks of matrix products over 16 frames: about 0.5 GFLOP a request, a quarter of the real model's
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc import model_config_pb2

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "models"), str(ROOT / "scripts")]

import vad  # noqa: E402
from graph import Graph  # noqa: E402

FLOAT = TensorProto.FLOAT

MAX_BATCH = 64
CANDIDATES = 1280  # slots for sequences
LAST = 2**31  # the end of a slice that takes the rest

Shape = tuple[int | str, ...]


class StatefulGraph(Graph):
    """A graph with states. Every tensor is float32 unless it says otherwise, and its batch axis is called "batch"."""

    def __init__(self, name: str):
        super().__init__(name, seed=7)
        self.states: dict[str, str] = {}  # input and output of each state
        self.shapes: dict[str, Shape] = {}  # of states

    def weights(self, *shape: int) -> str:
        """Random numbers so small that nothing grows from step to step."""
        return self.constant(self.random.standard_normal(shape) / np.sqrt(4 * shape[-2]), np.float32)

    def state(self, name: str, *shape: int | str) -> str:
        self.shapes[name] = shape
        return self.input(name, FLOAT, *shape)

    def keep(self, state: str, tensor: str) -> None:
        """Makes a tensor the new value of a state. The operator that makes it writes it: there is no copy."""
        new = f"new_{state}"
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == tensor:
                        names[i] = new
        self.outputs.append(helper.make_tensor_value_info(new, FLOAT, self.shapes[state]))
        self.states[state] = new


def lstm2x512() -> StatefulGraph:
    g = StatefulGraph("lstm2x512")
    x = g.input("x", FLOAT, "batch", 80)
    h, c = (g.state(name, 2, "batch", 512) for name in "hc")
    frames = lstm_layers(g, g.op("Unsqueeze", x, g.constant([0])), h, c, layers=2)
    g.output(g.op("Squeeze", frames, g.constant([0])), "y", FLOAT, "batch", 512)
    return g


def lstm5x512() -> StatefulGraph:
    g = StatefulGraph("lstm5x512")
    x = g.input("x", FLOAT, "batch", 4, 80)
    h, c = (g.state(name, 5, "batch", 512) for name in "hc")
    frames = lstm_layers(g, g.op("Transpose", x, perm=[1, 0, 2]), h, c, layers=5)
    scores = g.op("MatMul", g.op("Transpose", frames, perm=[1, 0, 2]), g.weights(512, 500))
    g.output(scores, "y", FLOAT, "batch", 4, 500)
    return g


def lstm_layers(g: StatefulGraph, frames: str, h: str, c: str, layers: int) -> str:
    """Layers of 512 units over frames [time, batch, 80]; h and c are states [layers, batch, 512]."""
    ends = []
    for layer in range(layers):
        features = 512 if layer else 80
        weights, recurrent = g.weights(1, 4 * 512, features), g.weights(1, 4 * 512, 512)
        before = [g.slice(state, layer, layer + 1, axis=0) for state in (h, c)]
        frames, *end = g.op("LSTM", frames, weights, recurrent, "", "", *before, outputs=3, hidden_size=512)
        frames = g.op("Squeeze", frames, g.constant([1]))  # one direction
        ends.append(end)
    for state, parts in zip((h, c), zip(*ends)):
        g.keep(state, g.op("Concat", *parts, axis=0))
    return frames


def kvring() -> StatefulGraph:
    g = StatefulGraph("kvring")
    x = g.input("x", FLOAT, "batch", 1024)
    ring = g.state("ring", "batch", 128, 1024)
    newest = g.op("Unsqueeze", x, g.constant([1]))
    g.keep(ring, g.op("Concat", g.slice(ring, 1, LAST, axis=1), newest, axis=1))
    g.output(g.op("ReduceMean", "new_ring", axes=[1], keepdims=0), "y", FLOAT, "batch", 1024)
    return g


def tokens() -> StatefulGraph:
    g = StatefulGraph("tokens")
    token = g.input("token", TensorProto.INT64, "batch", 1)
    total = g.state("sum", "batch", 8)
    x = g.op("Gather", g.weights(8, 2048), g.op("Squeeze", token, g.constant([1])))
    for _ in range(2):
        x = g.op("Relu", g.op("MatMul", x, g.weights(2048, 2048)))
    g.keep(total, g.op("Add", total, g.slice(x, 0, 8, axis=1)))
    g.output(f"new_{total}", "y", FLOAT, "batch", 8)
    return g


def zipformer97() -> StatefulGraph:
    frames, width = 16, 384
    g = StatefulGraph("zipformer97")
    x = g.input("x", FLOAT, "batch", frames, width)
    embed = g.state("embed", "batch", 128, 3, 19)
    g.keep(embed, g.op("Neg", embed))
    for layer in range(16):
        x = zipformer_block(g, layer, x, frames, width)
    g.output(x, "y", FLOAT, "batch", frames, width)
    return g


def zipformer_block(g: StatefulGraph, layer: int, x: str, frames: int, width: int) -> str:
    """One block: caches of keys and values move on by the new frames, and matrix products over the frames."""
    past = 64
    for name, size in (("key", 128), ("val1", 48), ("val2", 48)):  # [time, batch, size]
        cache = g.state(f"{name}_{layer}", past, "batch", size)
        new = g.op("Transpose", g.op("MatMul", x, g.weights(width, size)), perm=[1, 0, 2])
        g.keep(cache, g.op("Concat", g.slice(cache, frames, LAST, axis=0), new, axis=0))
    cache = g.state(f"nonlin_{layer}", 1, "batch", past, 144)
    new = g.op("Unsqueeze", g.op("MatMul", x, g.weights(width, 144)), g.constant([0]))
    g.keep(cache, g.op("Concat", g.slice(cache, frames, LAST, axis=2), new, axis=2))
    for name in ("conv1", "conv2"):  # the frames before, for a convolution over time
        cache = g.state(f"{name}_{layer}", "batch", 192, 15)
        new = g.op("Transpose", g.op("MatMul", x, g.weights(width, 192)), perm=[0, 2, 1])
        both = g.op("Concat", cache, new, axis=2)
        g.keep(cache, g.slice(both, frames, LAST, axis=2))
    attended = g.op("ReduceMean", f"new_key_{layer}", axes=[0], keepdims=0)  # [batch, 128]
    attended = g.op("Unsqueeze", g.op("MatMul", attended, g.weights(128, width)), g.constant([1]))
    x = g.op("Add", x, attended)
    wide = g.op("Relu", g.op("MatMul", x, g.weights(width, 1024)))
    return g.op("Add", g.op("Mul", x, g.constant(0.5, np.float32)), g.op("MatMul", wide, g.weights(1024, width)))


def config_of(g: StatefulGraph) -> model_config_pb2.ModelConfig:
    """The configuration of a graph: every request brings one lane, and the batch is Triton's."""
    config = model_config_pb2.ModelConfig(name=g.name, backend="stateful", max_batch_size=MAX_BATCH)
    states = {*g.states, *g.states.values()}
    for tensors, of_config in ((g.inputs, config.input), (g.outputs, config.output)):
        for tensor in tensors:
            if tensor.name not in states:
                kind = tensor.type.tensor_type
                data_type = model_config_pb2.TYPE_FP32 if kind.elem_type == FLOAT else model_config_pb2.TYPE_INT64
                of_config.add(name=tensor.name, data_type=data_type, dims=[dim.dim_value for dim in kind.shape.dim[1:]])
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


def silero_vad() -> tuple[model_config_pb2.ModelConfig, onnx.ModelProto]:
    model = onnx.load(vad.model_file())
    graph = model.graph
    rate = next(value for value in graph.input if value.name == "sr")
    graph.input.remove(rate)
    graph.initializer.append(numpy_helper.from_array(np.array(vad.audio.RATE, np.int64), "sr"))
    samples = vad.CONTEXT + vad.WINDOW
    shapes = {"input": [samples], "output": [1]}
    for value in (*graph.input, *graph.output):  # the file leaves the batch, and most of stateN, without a name
        dims = ["batch", *shapes[value.name]] if value.name in shapes else [2, "batch", 128]
        value.CopyFrom(helper.make_tensor_value_info(value.name, FLOAT, dims))
    config = model_config_pb2.ModelConfig(name="silero_vad", backend="stateful", max_batch_size=MAX_BATCH)
    config.input.add(name="input", data_type=model_config_pb2.TYPE_FP32, dims=shapes["input"])
    config.output.add(name="output", data_type=model_config_pb2.TYPE_FP32, dims=shapes["output"])
    config.parameters["state_pairs"].string_value = "<<<state, stateN>>>"
    return config, model


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


def write_graph(folder: Path, graph: StatefulGraph) -> None:
    write(folder, config_of(graph), lambda path: onnx.save(graph.model(), path))


def write_accumulate(folder: Path) -> None:
    example = ROOT / "models" / "accumulate_fp32" / "1" / "model.onnx"
    write(folder, accumulate_config(), lambda path: shutil.copyfile(example, path))


def write_silero(folder: Path) -> None:
    try:
        config, model = silero_vad()
    except vad.VADError as missing:
        print(f"silero_vad is left out: {missing}")
        return
    write(folder, config, lambda path: onnx.save(model, path))


MAKERS: dict[str, Callable[[Path], None]] = {
    "accumulate_fp32": write_accumulate,
    "lstm2x512": lambda folder: write_graph(folder, lstm2x512()),
    "lstm5x512": lambda folder: write_graph(folder, lstm5x512()),
    "silero_vad": write_silero,
    "kvring": lambda folder: write_graph(folder, kvring()),
    "tokens": lambda folder: write_graph(folder, tokens()),
    "zipformer97": lambda folder: write_graph(folder, zipformer97()),
}


def main() -> int:
    folder, *names = sys.argv[1:] or ["-h"]
    if folder.startswith("-") or not set(names) <= set(MAKERS):
        print(__doc__)
        return 2
    for name in names or MAKERS:
        MAKERS[name](Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
