"""Every type that Triton has, as a state and as a plain input and output, in lanes of every rank."""

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, io
from conftest import Folder
from graphs import BF16, delay, model, op, running_sum, tensor
from sequences import Reference, Tensors, check

TYPES = {
    "BOOL": bool,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": BF16,
}
RANKS = {"scalar": (), "vector": (3,), "matrix": (2, 3)}
STATES = {"s": "s_out"}


def strings() -> ModelProto:
    """Returns strings as they came, with a state that counts requests."""
    return model(
        op("Identity", "text -> echo"),
        op("Add", "count one -> count_out"),
        op("Identity", "count_out -> n"),
        inputs=[tensor("text", bytes, "batch", 2), tensor("count", np.int64, "batch")],
        outputs=[
            tensor("echo", bytes, "batch", 2),
            tensor("n", np.int64, "batch"),
            tensor("count_out", np.int64, "batch"),
        ],
        constants={"one": np.array([1])},
    )


def delayed(datatype: str, dims: tuple[int, ...], axis: int = 0) -> Folder:
    inputs, outputs = [io("x", datatype, *dims)], [io("y", datatype, *dims)]
    return Folder(config(inputs, outputs), delay(TYPES[datatype], *dims, axis=axis))


CASES = {f"{datatype}_{rank}": (datatype, dims, 0) for datatype in TYPES for rank, dims in RANKS.items()} | {
    f"{datatype}_inner": (datatype, (2, 3), 1) for datatype in TYPES
}

MODELS = {name: delayed(*case) for name, case in CASES.items()} | {
    "strings": Folder(
        config([io("text", "STRING", 2)], [io("echo", "STRING", 2), io("n", "INT64")], state_pairs="<<<count, count_out>>>"),
        strings(),
    ),
    "rank_0": Folder(config([io("x", "INT64")], [io("y", "INT64")]), running_sum(dtype=np.int64)),
}


def draw(random: np.random.Generator, datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random bytes are random values, but for bool; among floats are infinities, NaN and subnormal numbers."""
    if datatype == "BOOL":
        return random.random(shape) < 0.5
    dtype = np.dtype(TYPES[datatype])
    return np.frombuffer(random.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


@pytest.mark.parametrize("name", CASES)
def test_type(own_client, name):
    datatype, dims, axis = CASES[name]
    random = np.random.default_rng(0)
    sequences = [[{"x": draw(random, datatype, (1, *(dims or (1,))))} for _ in range(3)] for _ in range(3)]
    check(own_client, name, Reference(MODELS[name].onnx, STATES, axes={"x": axis, "y": axis}), sequences)


def of_strings(*words: str) -> Tensors:
    return {"text": np.array([[word.encode() for word in words]], object)}


def test_strings(own_client):
    """Texts of different lengths run together; none is seen by another sequence."""
    sequences = [
        [of_strings("a", "bb"), of_strings("", "Käse → 語"), of_strings("x" * 5000, "y")],
        [of_strings("", ""), of_strings("three", "four"), of_strings("five\0six", " ")],
        [of_strings("1", "22"), of_strings("333", "4444"), of_strings("55555", "")],
    ]
    check(own_client, "strings", Reference(MODELS["strings"].onnx, {"count": "count_out"}), sequences)


def test_rank_0(own_client):
    sequences = [[{"x": np.array([[10 * at + step]])} for step in range(3)] for at in range(3)]
    reference = Reference(MODELS["rank_0"].onnx, STATES, axes={"x": None, "y": None})
    check(own_client, "rank_0", reference, sequences, batched=False)
