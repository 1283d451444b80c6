"""What several instances of a model with 200 MB of weights cost: go run build.go bench --weights

Real tritonservers serve the same model with one instance, with several that share a session (the default), and with
several that have one each (share_session_between_instances: 0). Each gets the same requests, one at a time, so the
answers must be the same bits. Then the two with several instances are loaded in turns.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import psutil
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper
from tritonclient import grpc
from tritonclient.grpc import model_config_pb2

from benchreport import cpu_per_request
from tritonserver import TritonServer

NAME, WIDTH, LAYERS = "weights", 2048, 12  # 12 matrices of 16.8 MB
MAX_BATCH = 8
INSTANCES = 8
MOST_MEMORY = 1.2  # of several instances over one
MOST_CPU = 1.05  # time per request with one session over that with one each
SEQUENCES, STEPS = 2 * INSTANCES, 3  # of the requests whose answers are compared

CONFIG = f"""
name: "{NAME}" backend: "stateful" max_batch_size: {MAX_BATCH}
input {{ name: "x" data_type: TYPE_FP32 dims: [{WIDTH}] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [{WIDTH}] }}
sequence_batching {{ max_sequence_idle_microseconds: 60000000 oldest {{ max_candidate_sequences: 64 }} }}
parameters {{ key: "state_pairs" value {{ string_value: "<<<sum, new_sum>>>" }} }}
"""


class Server(NamedTuple):
    """A running server with the model, and what it took to get there."""

    name: str
    config: model_config_pb2.ModelConfig
    server: TritonServer
    load_seconds: float
    empty: int  # bytes, before the model was loaded
    loaded: int  # and after each instance has run

    @property
    def took(self) -> int:
        return self.loaded - self.empty


def write_model(path: Path) -> None:
    """The layers, each with tanh; what comes out is added to a state, which is the answer."""
    if path.exists():
        return
    random = np.random.default_rng(7)
    nodes, constants, x = [], [], "x"
    for layer in range(LAYERS):
        weights = random.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
        constants.append(numpy_helper.from_array(weights, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{layer}"], [f"p{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"p{layer}"], [x := f"t{layer}"]))
    nodes.append(helper.make_node("Add", ["sum", x], ["new_sum"]))
    nodes.append(helper.make_node("Identity", ["new_sum"], ["y"]))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in ("x", "sum", "y", "new_sum")]
    graph = helper.make_graph(nodes, NAME, value[:2], value[2:], constants)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    onnx.save(model, unfinished)
    unfinished.rename(path)


def configuration(count: int, **parameters: str) -> model_config_pb2.ModelConfig:
    config = text_format.Parse(CONFIG, model_config_pb2.ModelConfig())
    config.instance_group.add(count=count, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    return config


@contextlib.contextmanager
def serve(name: str, config: model_config_pb2.ModelConfig, file: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary) / NAME
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "model.onnx").symlink_to(file)
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
        with TritonServer(Path(temporary), explicit=True, timeout=120) as server:
            empty = resident(server)
            began = time.monotonic()
            server.load(NAME)
            load_seconds = time.monotonic() - began
            yield Server(name, config, server, load_seconds, empty, 0)


def resident(server: TritonServer) -> int:
    return psutil.Process(server.pid).memory_info().rss


def answers(server: TritonServer) -> np.ndarray:
    """The answers to the same requests of sequences that are all open at once, one request at a time. There are enough
    sequences for every instance."""
    random = np.random.default_rng(3)
    given = []
    with grpc.InferenceServerClient(server.grpc_url) as client:
        for step in range(STEPS):
            for sequence in range(1, SEQUENCES + 1):
                x = grpc.InferInput("x", [1, WIDTH], "FP32")
                x.set_data_from_numpy(random.standard_normal((1, WIDTH), np.float32))
                answer = client.infer(NAME, [x], sequence_id=sequence, sequence_start=step == 0, sequence_end=step == STEPS - 1)
                given.append(answer.as_numpy("y"))
    return np.concatenate(given)


def measure(load, folder: Path, options: argparse.Namespace) -> int:
    """Prints memory, times of the load and CPU times, and says by the exit code whether they are as they should be.
    load(server, config) loads a server once and returns what the load generator says."""
    file = folder / NAME / "model.onnx"
    write_model(file)
    with contextlib.ExitStack() as stack:
        servers, seen = [], []
        for name, config in {
            "1 instance": configuration(1),
            f"{INSTANCES}, one session": configuration(INSTANCES),
            f"{INSTANCES}, one each": configuration(INSTANCES, share_session_between_instances="0"),
        }.items():
            server = stack.enter_context(serve(name, config, file))
            seen.append(answers(server.server))
            servers.append(server._replace(loaded=resident(server.server)))
        show(servers)
        servers[0].server.stop()
        spent = compare(load, servers[1:], options.rounds)
    memory = servers[1].took / servers[0].took
    failures = []
    if not all(np.array_equal(seen[0], other) for other in seen[1:]):
        failures.append("the answers differ")
    if memory > MOST_MEMORY:
        failures.append(f"{INSTANCES} instances take {memory:.2f} times the memory of one: want {MOST_MEMORY}")
    if spent > MOST_CPU:
        failures.append(
            f"a request takes {spent:.2f} times the CPU time that it takes with sessions of their own: want {MOST_CPU}"
        )
    for failure in failures:
        print(f"FAILED: {failure}")
    return int(bool(failures))


def show(servers: list[Server]) -> None:
    """Prints memory and the time of the load; the first server is what the others are compared with."""
    print(f"\n{'':<16}{'MB':>6}{'over 1':>8}{'MB less an empty server':>25}{'over 1':>8}{'load, s':>9}")
    for s in servers:
        print(
            f"{s.name:<16}{s.loaded / 1e6:>6.0f}{s.loaded / servers[0].loaded:>8.2f}{s.took / 1e6:>25.0f}"
            f"{s.took / servers[0].took:>8.2f}{s.load_seconds:>9.2f}",
            flush=True,
        )


def compare(load, servers: list[Server], rounds: int) -> float:
    """Loads two servers in turns; returns the CPU time per request of the first over that of the second."""
    rates: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    for round_number in range(rounds):
        for i in (0, 1) if round_number % 2 else (1, 0):
            result = load(servers[i].server, servers[i].config)
            rates[i].append(result["requests_per_second"])
            cpu[i].append(cpu_per_request(result))
    for s, rate, spent in zip(servers, rates, cpu):
        print(f"{s.name:<16}{statistics.median(rate):>6.0f} requests/s, {statistics.median(spent):.0f} µs of CPU time each")
    rate, spent = (statistics.median(a / b for a, b in zip(*of)) for of in (rates, cpu))
    print(f"one session over one each, medians of {rounds} rounds: requests/s {rate:.2f}, CPU time {spent:.2f}")
    return spent
