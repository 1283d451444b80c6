"""tritonstateful plan against the resident memory of a real server, beyond what the server and its libraries take."""

import numpy as np
import psutil
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient

from conftest import Folder
from graphs import model, op, running_sum, tensor
from test_command import run_json
from trial import tensor as sent
from tritonserver import NO_METRICS, TritonServer

F32 = np.float32
CONFIG = 'backend: "stateful"\nmax_batch_size: 16\nsequence_batching {{ max_sequence_idle_microseconds: 600000000 oldest {{ max_candidate_sequences: {} }} }}\n'
SIZE = "parameters { key: 'max_state_bytes' value { string_value: '100000000' } }\n"


def fixed() -> ModelProto:
    """A state of 256 KiB."""
    return model(
        op("Add", "h x -> h_out"),
        op("ReduceMean", "h_out -> y", axes=[1], keepdims=1),
        inputs=[tensor("x", F32, "batch", 1), tensor("h", F32, "batch", 65536)],
        outputs=[tensor("y", F32, "batch", 1), tensor("h_out", F32, "batch", 65536)],
    )


def growing() -> ModelProto:
    """A cache that grows by 32 KiB for each element of a request."""
    return model(
        op("Expand", "x width -> wide"),
        op("Concat", "cache wide -> cache_out", axis=1),
        op("ReduceMean", "wide -> y", axes=[1, 2], keepdims=0),
        inputs=[tensor("x", F32, "batch", "time", 1), tensor("cache", F32, "batch", "past", 8192)],
        outputs=[tensor("y", F32, "batch"), tensor("cache_out", F32, "batch", "all", 8192)],
        constants={"width": np.array([1, 1, 8192])},
    )


def weights() -> ModelProto:
    """A table of 50 MB, and a state of 4 KB."""
    return model(
        op("Cast", "x -> row", to=7),
        op("Gather", "table row -> found"),
        op("Add", "h found -> h_out"),
        op("ReduceMean", "h_out -> y", axes=[1, 2], keepdims=0),
        inputs=[tensor("x", F32, "batch", 1), tensor("h", F32, "batch", 1, 1000)],
        outputs=[tensor("y", F32, "batch"), tensor("h_out", F32, "batch", 1, 1000)],
        constants={"table": np.full((12500, 1000), 1e-4, F32)},
    )


CASES = {"fixed": (fixed, (1,), 400, 3), "growing": (growing, (1, 1), 200, 11), "weights": (weights, (1,), 20, 2)}


@pytest.mark.parametrize("name", CASES)
def test_within_a_tenth_of_a_server(name, tmp_path):
    make, shape, sequences, steps = CASES[name]
    folder = tmp_path / name
    Folder(CONFIG.format(2 * sequences) + SIZE, make()).write(folder)
    want = run_json("plan", str(folder), "--sequences", str(sequences), "--steps", str(steps), "--extent", "1")
    assert want["measured_sequences"] <= sequences
    Folder('backend: "stateful"', running_sum("batch", 3)).write(tmp_path / "small")
    with TritonServer(tmp_path, explicit=True, options=[NO_METRICS, "--log-info=false"]) as server:
        process = psutil.Process(server.pid)
        with InferenceServerClient(server.grpc_url) as client:
            server.load("small")  # and the libraries
            client.infer("small", [sent("x", np.zeros((1, 3), F32))], sequence_id=1, sequence_start=True)
            before = process.memory_info().rss
            server.load(name)
            for sequence in range(1, sequences + 1):
                for step in range(steps):
                    value = np.full((1, *shape), step, F32)
                    client.infer(name, [sent("x", value)], sequence_id=sequence, sequence_start=step == 0)
        grown = process.memory_info().rss - before
    assert grown == pytest.approx(want["resident_bytes"], rel=0.1)
