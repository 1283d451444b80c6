"""Sequences of unequal length share a run where the model takes a mask and the configuration names it."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferInput
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from sequences import Reference, Tensors, play
from unary import infer

F32 = np.float32
WIDTH = 3
ROWS, OUT = io("x", "FP32", -1, WIDTH), io("y", "FP32", WIDTH)
LANES = io("lanes", "INT64", more="")
STATES = {"past_0": "present_0", "past_1": "present_1"}
LIMIT = 8 * WIDTH * 4  # bytes of eight rows


def attention() -> ModelProto:
    """Attends to all rows so far: what the mask hides gets no weight. One cache has its length in the last axis. An
    output has the number of lanes of the run."""
    return model(
        op("Concat", "past_0 x -> present_0", axis=1),
        op("Transpose", "x -> turned", perm=[0, 2, 1]),
        op("Concat", "past_1 turned -> present_1", axis=2),
        op("ReduceSum", "present_0 two -> keys", keepdims=0),
        op("ReduceSum", "present_1 one -> more", keepdims=0),
        op("Add", "keys more -> scores"),
        op("Cast", "mask -> seen", to=1),
        op("Sub", "seen unit -> hidden"),
        op("Mul", "hidden huge -> bias"),
        op("Add", "scores bias -> biased"),
        op("Softmax", "biased -> weights", axis=1),
        op("Unsqueeze", "weights two -> column"),
        op("Mul", "column present_0 -> weighted"),
        op("ReduceSum", "weighted one -> y", keepdims=0),
        op("Shape", "x -> shape"),
        op("Gather", "shape zero -> batch_size"),
        op("Expand", "batch_size batch_size -> lanes"),
        inputs=[
            tensor("x", F32, "batch", "rows", WIDTH),
            tensor("past_0", F32, "batch", "past", WIDTH),
            tensor("past_1", F32, "batch", WIDTH, "past"),
            tensor("mask", np.int64, "batch", "total"),
        ],
        outputs=[
            tensor("y", F32, "batch", WIDTH),
            tensor("lanes", np.int64, "batch"),
            tensor("present_0", F32, "batch", "total", WIDTH),
            tensor("present_1", F32, "batch", WIDTH, "total"),
        ],
        constants={
            "zero": np.array([0]),
            "one": np.array([1]),
            "two": np.array([2]),
            "unit": np.array(1, F32),
            "huge": np.array(1e9, F32),
        },
    )


def pooling(bias: float = 1e9, further: int | None = None, sinks: int | None = None, sharp: float = 1) -> ModelProto:
    """Attends to its rows with the sum of each, times sharp, as its score; bias is what the mask takes from one that it
    hides. Beyond a total length, further doubles the answer, as some embeddings of positions change; sinks attends to
    the first four rows and the last ones only, as many in all."""
    attended = [op("Identity", "keys -> attended")]
    if sinks is not None:
        attended = [
            op("Range", "nothing total step -> rows"),
            op("Less", "rows four -> first"),
            op("Sub", "total last -> begin"),
            op("GreaterOrEqual", "rows begin -> recent"),
            op("Or", "first recent -> kept"),
            op("Where", "kept keys low -> attended"),
        ]
    answer = [op("Identity", "sum -> y")]
    if further is not None:
        answer = [
            op("Greater", "total length -> long"),
            op("Cast", "long -> factor", to=1),
            op("Mul", "sum factor -> more"),
            op("Add", "sum more -> y"),
        ]
    return model(
        op("Concat", "past x -> present", axis=1),
        op("Shape", "mask -> shape"),
        op("Gather", "shape one -> total"),
        op("Cast", "mask -> seen", to=1),
        op("Sub", "seen unit -> hidden"),
        op("Mul", "hidden bias -> biases"),
        op("ReduceSum", "present two -> sums", keepdims=0),
        op("Mul", "sums sharp -> keys"),
        *attended,
        op("Add", "attended biases -> scores"),
        op("Softmax", "scores -> weights", axis=1),
        op("Unsqueeze", "weights two -> column"),
        op("Mul", "column present -> weighted"),
        op("ReduceSum", "weighted axis -> sum", keepdims=0),
        *answer,
        inputs=[
            tensor("x", F32, "batch", "rows", WIDTH),
            tensor("past", F32, "batch", "past", WIDTH),
            tensor("mask", np.int64, "batch", "total"),
        ],
        outputs=[tensor("y", F32, "batch", WIDTH), tensor("present", F32, "batch", "total", WIDTH)],
        constants={
            "one": np.array(1),
            "axis": np.array([1]),
            "two": np.array([2]),
            "unit": np.array(1, F32),
            "bias": np.array(bias, F32),
            "sharp": np.array(sharp, F32),
            "length": np.array(further or 0),
            "nothing": np.array(0),
            "step": np.array(1),
            "four": np.array(4),
            "last": np.array((sinks or 4) - 4),
            "low": np.array(-1e9, F32),
        },
    )


def open_ended() -> ModelProto:
    """Its input has no extent that the model fixes."""
    return model(
        op("Concat", "past x -> present", axis=1),
        op("Identity", "mask -> seen"),
        inputs=[
            tensor("x", F32, "batch", "rows", "width"),
            tensor("past", F32, "batch", "past", 1),
            tensor("mask", np.int64, "batch", "total"),
        ],
        outputs=[tensor("seen", np.int64, "batch", "total"), tensor("present", F32, "batch", "total", 1)],
    )


def window(rows: int) -> ModelProto:
    """Remembers the last rows, and answers with the sum of those that the mask shows and of what is new."""
    return model(
        op("Concat", "past x -> all", axis=1),
        op("Slice", "all first last axis -> present"),
        op("Cast", "mask -> seen", to=1),
        op("Unsqueeze", "seen two -> column"),
        op("Mul", "all column -> shown"),
        op("ReduceSum", "shown axis -> y", keepdims=0),
        op("Shape", "x -> shape"),
        op("Gather", "shape zero -> batch_size"),
        op("Expand", "batch_size batch_size -> lanes"),
        inputs=[
            tensor("x", F32, "batch", "rows", WIDTH),
            tensor("past", F32, "batch", "past", WIDTH),
            tensor("mask", np.int64, "batch", "total"),
        ],
        outputs=[
            tensor("y", F32, "batch", WIDTH),
            tensor("lanes", np.int64, "batch"),
            tensor("present", F32, "batch", "kept", WIDTH),
        ],
        constants={
            "zero": np.array([0]),
            "first": np.array([-rows]),
            "last": np.array([2**62]),
            "axis": np.array([1]),
            "two": np.array([2]),
        },
    )


TOLD = {"batch_axes": "* = 0"}  # an output that counts the lanes looks like one of lanes that see each other
MASK = {"derived_inputs": "mask = mask(past_*, x)", **TOLD}
BY_AXIS = {"derived_inputs": "mask = mask(past, x:1)", **TOLD}
WAITING = oldest(4, delay=300_000)
SOON = oldest(4, delay=60_000)  # for batches of unequal shapes, which never are of 4
POOLING = config([ROWS], [OUT], SOON, state_pairs="<<<past, present>>>", **BY_AXIS)
DIFFERENT = {
    "sound": lambda: pooling(),
    "finite_bias": lambda: pooling(bias=100),
    "longer_than_64": lambda: pooling(further=64),
    "first_and_last_44": lambda: pooling(sinks=44),
    "first_and_last_64": lambda: pooling(sinks=64),
    "sharp_first_and_last_64": lambda: pooling(sinks=64, sharp=20),
}
SCHEDULERS = ["oldest", "direct", "free"]

MODELS = {
    **{name: Folder(POOLING, make) for name, make in DIFFERENT.items()},
    "limited": Folder(config([ROWS], [OUT, LANES], WAITING, max_state_bytes=str(LIMIT), **MASK), attention()),
    # One window is reached when the model is tried at load, the other not before it is served.
    "window_4": Folder(config([ROWS], [OUT, LANES], SOON, **BY_AXIS), lambda: window(4)),
    "window_12": Folder(config([ROWS], [OUT, LANES], SOON, **BY_AXIS), lambda: window(12)),
    "open": Folder(config([io("x", "FP32", -1, -1)], [io("seen", "INT64", -1)], oldest(4), **BY_AXIS), open_ended()),
}


def rows(counts: list[int], seed: int) -> list[Tensors]:
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(1, count, WIDTH)).astype(F32)} for count in counts]


def mask(window: int = 1 << 62) -> Callable[[list[Tensors]], Tensors]:
    """A mask over what a model keeps, which is a window at most, and what the step brings."""

    def covered(steps: list[Tensors]) -> Tensors:
        held = 0
        for step in steps[:-1]:
            held = min(held + step["x"].shape[1], window)
        return {"mask": np.ones((1, held + steps[-1]["x"].shape[1]), np.int64)}

    return covered


@pytest.mark.parametrize("name", DIFFERENT)
def test_padding_only_where_it_was_tried(own_server, own_client, name):
    """What a model does beyond some length, or to values that the mask does not outweigh, is found at load."""
    random = np.random.default_rng(7)
    counts = [[58] + [1] * 12, [42] + [1] * 12, [30] + [2] * 12, [90] + [1] * 12]
    sequences = [[{"x": random.uniform(-60, -50, (1, count, WIDTH)).astype(F32)} for count in steps] for steps in counts]
    for number, (steps, answered) in enumerate(zip(sequences, play(own_client, name, sequences), strict=True)):
        want = Reference(DIFFERENT[name](), {"past": "present"}, given=mask()).answers(steps)
        for step, (got, alone) in enumerate(zip(answered, want, strict=True)):
            np.testing.assert_allclose(got["y"], alone["y"], rtol=1e-5, atol=1e-4, err_msg=f"{number}, {step}")
    separate = rf"sequences of unequal length run separately[^\n]*model={own_client.served(name)}\b"
    assert bool(re.search(separate, own_server.log_text())) == (name != "sound")


@pytest.mark.parametrize("size", [4, 12])
def test_what_forgets_runs_apart(own_server, own_client, size):
    """A model with a window drops what is old, so padding would push out a shorter sequence's own rows."""
    sequences = [rows(counts, size) for counts in ([4] + [1] * 12, [1] * 13, [3] * 13, [2] + [1] * 12)]
    answers = play(own_client, f"window_{size}", sequences)
    for number, (steps, answered) in enumerate(zip(sequences, answers, strict=True)):
        want = Reference(window(size), {"past": "present"}, given=mask(size)).answers(steps)
        for step, (got, alone) in enumerate(zip(answered, want, strict=True)):
            np.testing.assert_allclose(got["y"], alone["y"], rtol=0, atol=1e-5, err_msg=f"{number}, {step}")
    log = own_server.log_text()
    name = rf"model={own_client.served(f'window_{size}')}\b"
    assert len(re.findall(rf"unequal length run separately: .*drops old entries.*{name}", log)) == 1


def test_the_longest_does_not_fail_the_others(own_client):
    """A sequence that reaches its limit is refused alone, and keeps its state."""
    long, short = rows([8, 1], 5), rows([1, 1], 6)
    infer(own_client, "limited", 91, long[0], start=True)
    infer(own_client, "limited", 92, short[0], start=True)
    with ThreadPoolExecutor(2) as pool:
        refused = pool.submit(infer, own_client, "limited", 91, long[1])
        answered = pool.submit(infer, own_client, "limited", 92, short[1])
        with pytest.raises(InferenceServerException, match="past_[01].*max_state_bytes"):
            refused.result()
        want = Reference(attention(), STATES, given=mask()).answers(short)[1]
        np.testing.assert_allclose(answered.result()["y"], want["y"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [1 << 32, 1 << 61])
def test_a_shape_without_data_is_refused_alone(own_client, length):
    """A request may say that it is as long as it likes, if another extent is 0. It is refused alone."""
    one = {"x": np.ones((1, 2, 1), F32)}
    infer(own_client, "open", 81, one, start=True)
    hollow = InferInput("x", [1, length, 0], "FP32")
    hollow._raw_content = b""  # the client has no other way to send what numpy cannot make
    with pytest.raises(InferenceServerException, match="mask of length 0"):
        own_client.infer("open", [hollow], sequence_id=82, sequence_start=True)
    assert infer(own_client, "open", 81, one)["seen"].tolist() == [[1, 1, 1, 1]]
