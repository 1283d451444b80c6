"""The streaming example models: every answer is what ONNX Runtime says of the sequence alone."""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient

from generate_streaming import IMPLICIT_MEAN
from sequences import Reference, Tensors, check, play
from tritonserver import MODELS, TritonServer

# What a batch of several lanes may change in sums of products.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc_url) as client:
        yield client


def example(name: str) -> ModelProto:
    return onnx.load(MODELS / name / "1" / "model.onnx")


def frames(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal((1, *shape)).astype(np.float32)


def lstm() -> Reference:
    return Reference(example("streaming_lstm"), {"h": "h_out", "c": "c_out"})


def test_streaming_lstm(client):
    random = np.random.default_rng(1)
    sequences = [[{"x": frames(random, 3, 8)} for _ in range(6)] for _ in range(8)]
    check(client, "streaming_lstm", lstm(), sequences, tolerance=TOLERANCE)


def test_streaming_lstm_with_chunks_of_all_sizes(client):
    """Triton itself puts only requests of equal shapes into a batch."""
    random = np.random.default_rng(2)
    sequences = [[{"x": frames(random, 1 + (at + step) % 4, 8)} for step in range(6)] for at in range(8)]
    check(client, "streaming_lstm", lstm(), sequences, tolerance=TOLERANCE, batched=False)


def test_one_lane_is_equal_to_the_bit(client):
    random = np.random.default_rng(3)
    check(client, "streaming_lstm", lstm(), [[{"x": frames(random, 5, 8)} for _ in range(5)]])


def decoder() -> Reference:
    states = {f"past_key_values.{n}.{kind}": f"present.{n}.{kind}" for n in (0, 1) for kind in ("key", "value")}

    def position(steps: list[Tensors]) -> Tensors:
        return {"position": np.array([[sum(each["input_ids"].size for each in steps[:-1])]])}

    return Reference(example("kv_decoder"), states, given=position)


def test_kv_decoder(client):
    """Prompts of different lengths and a token at a time: caches of all lengths at once."""
    random = np.random.default_rng(4)
    sequences = [[{"input_ids": random.integers(0, 32, (1, count))} for count in [1 + at % 3] + [1] * 8] for at in range(6)]
    check(client, "kv_decoder", decoder(), sequences, tolerance=TOLERANCE)


def test_conformer_like(client):
    states = {"processed_lens": "new_processed_lens"}
    for layer in (0, 1):
        states |= {f"cached_{kind}_{layer}": f"new_cached_{kind}_{layer}" for kind in ("key", "val", "conv")}
    random = np.random.default_rng(6)

    def chunk() -> Tensors:
        return {"x": frames(random, 4, 8), "x_lens": random.integers(1, 5, (1, 1))}

    sequences = [[chunk() for _ in range(5)] for _ in range(8)]
    check(client, "conformer_like", Reference(example("conformer_like"), states), sequences, tolerance=TOLERANCE)


def test_implicit_state(client):
    def start(steps: list[Tensors]) -> Tensors:
        return {"START": np.array([[len(steps) == 1]], np.float32)}

    states = {"SUM_IN": "SUM_OUT", "MEAN_IN": "MEAN_OUT"}
    reference = Reference(example("implicit_state"), states, {"MEAN_IN": IMPLICIT_MEAN[np.newaxis]}, given=start)
    random = np.random.default_rng(7)
    check(client, "implicit_state", reference, [[{"INPUT": frames(random, 4)} for _ in range(5)] for _ in range(6)])


def test_ensemble(client):
    """The steps before and after the stateful one keep nothing; it keeps the states of the ensemble's sequences."""
    random = np.random.default_rng(8)
    sequences = [[{"frames": frames(random, 2, 8)} for _ in range(5)] for _ in range(4)]
    answers = play(client, "ensemble", sequences)
    first, last = Reference(example("ensemble_first")), Reference(example("ensemble_last"))
    for steps, answered in zip(sequences, answers, strict=True):
        centred = [{"x": each["centred"]} for each in first.answers(steps)]
        values = [{"values": each["y"]} for each in lstm().answers(centred)]
        for got, want in zip(answered, last.answers(values), strict=True):
            np.testing.assert_allclose(got["probabilities"], want["probabilities"], rtol=TOLERANCE, atol=TOLERANCE)
