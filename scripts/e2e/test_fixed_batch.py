"""A decoder exported for a batch of 1, whose only dynamic axes are lengths, all named; and one without any names."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient

from configs import config, io
from conftest import Folder
from graphs import model, op, tensor
from sequences import Reference, Tensors, check
from tritonserver import TritonServer

F32 = np.float32
STATES = {f"past_key_values.{layer}.key": f"present.{layer}.key" for layer in (0, 1)}


def decoder(batch: int | None, past: str | None, total: str | None) -> ModelProto:
    """Two caches [batch, 2, length, 4] that grow by what is sent; a batch of None is dynamic, as are names of None."""
    caches = [
        node
        for past_name, present_name in STATES.items()
        for node in (op("Concat", f"{past_name} heads -> {present_name}", axis=2),)
    ]
    return model(
        op("Unsqueeze", "x one -> head"),
        op("Concat", "head head -> heads", axis=1),
        *caches,
        op("ReduceSum", f"{STATES['past_key_values.0.key']} lengths -> sum", keepdims=0),
        op("ReduceSum", f"{STATES['past_key_values.1.key']} lengths -> more", keepdims=0),
        op("Add", "sum more -> y"),
        inputs=[tensor("x", F32, batch, "rows" if past else None, 4)] + [tensor(name, F32, batch, 2, past, 4) for name in STATES],
        outputs=[tensor("y", F32, batch, 4)] + [tensor(name, F32, batch, 2, total, 4) for name in STATES.values()],
        constants={"one": np.array([1]), "lengths": np.array([1, 2])},
    )


CONFIG = config([io("x", "FP32", -1, 4)], [io("y", "FP32", 4)])
MODELS = {"batch_of_one": decoder(1, "past", "total"), "no_names": decoder(None, None, None)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository: Path = tmp_path_factory.mktemp("repository")
    for name, onnx in MODELS.items():
        Folder(CONFIG, onnx).write(repository / name)
    with TritonServer(repository) as server:
        yield server


def rows(*counts: int, first: int = 0) -> list[Tensors]:
    return [{"x": np.full((1, count, 4), 1 + first + step, F32)} for step, count in enumerate(counts)]


@pytest.mark.parametrize("name", MODELS)
def test_caches_grow_along_their_length(server, name: str):
    """Neither a length that many inputs share nor one without a name is taken for the batch."""
    sequences = [rows(1, 2, 1, 3), rows(2, 1, 1, first=10), rows(1, 2, 1, 3, first=20)]
    onnx = MODELS[name]
    reference = Reference(onnx, STATES, initial={state: np.zeros((1, 2, 0, 4), F32) for state in STATES})
    with InferenceServerClient(server.grpc_url) as client:
        check(client, name, reference, sequences, batched=False)


def test_the_report_says_how_the_batch_was_found(server):
    log = server.log_text()
    assert "requests run one at a time" in log
    assert "found by runs" in log
