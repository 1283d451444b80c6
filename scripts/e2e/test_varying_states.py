"""States whose shapes change: caches that grow from nothing, and models that choose their states' shapes."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from sequences import Reference, Tensors, check, play
from unary import infer

F32 = np.float32
GROWING = {"past": "present"}


def cache(axis: int | None = 0) -> ModelProto:
    """Remembers every row that it is sent, and answers with their sum and number."""
    past, rows = ["past", 2], ["rows", 2]
    if axis is not None:
        past.insert(axis, "batch")
        rows.insert(axis, "batch")
    time = 1 if axis == 0 else 0
    lane = [] if axis is None else ["batch"]
    return model(
        op("Concat", "past x -> present", axis=time),
        op("ReduceSum", "present time -> y", keepdims=0),
        op("Shape", "present -> shape"),
        op("Gather", "shape time -> length"),
        inputs=[tensor("x", F32, *rows), tensor("past", F32, *past)],
        outputs=[
            tensor("y", F32, *lane, 2),
            tensor("present", F32, *(f"new_{d}" if d == "past" else d for d in past)),
            tensor("length", np.int64, 1),
        ],
        constants={"time": np.array([time])},
    )


def two_caches() -> ModelProto:
    """One grows by what is sent, one by twice that; a third state does not grow."""
    shapes = {"slow": ["batch", "past", 2], "fast": ["batch", 2, "past_fast"]}
    return model(
        op("Concat", "slow x -> slow_out", axis=1),
        op("Transpose", "x -> turned", perm=[0, 2, 1]),
        op("Concat", "fast turned turned -> fast_out", axis=2),
        op("ReduceSum", "slow_out one -> slow_sum", keepdims=0),
        op("ReduceSum", "fast_out two -> fast_sum", keepdims=0),
        op("Add", "slow_sum fast_sum -> sums"),
        op("Add", "sums s -> y"),
        op("Identity", "y -> s_out"),
        inputs=[
            tensor("x", F32, "batch", "rows", 2),
            tensor("s", F32, "batch", 2),
            *(tensor(n, F32, *d) for n, d in shapes.items()),
        ],
        outputs=[
            tensor("y", F32, "batch", 2),
            tensor("s_out", F32, "batch", 2),
            tensor("slow_out", F32, "batch", "slow_total", 2),
            tensor("fast_out", F32, "batch", 2, "fast_total"),
        ],
        constants={"one": np.array([1]), "two": np.array([2])},
    )


def matting() -> ModelProto:
    """Like robust video matting: the state is one number at first, then two pictures half as large as what is sent. Of
    its output, the model's file knows the number of channels; of its input nothing."""
    return model(
        op("AveragePool", "src -> half", kernel_shape=[2, 2], strides=[2, 2]),
        op("ReduceMean", "r1i -> before", axes=[1, 2, 3], keepdims=1),
        op("Add", "half before -> moved"),
        op("Concat", "half moved -> r1o", axis=1),
        op("Sub", "src before -> pha"),
        inputs=[
            tensor("src", F32, "batch", 1, "height", "width"),
            tensor("r1i", F32, "batch", "channels", "r_height", "r_width"),
        ],
        outputs=[
            tensor("pha", F32, "batch", 1, "height", "width"),
            tensor("r1o", F32, "batch", 2, "half_height", "half_width"),
        ],
    )


def counters(x: str = "x") -> ModelProto:
    """Tells every number that the backend can derive, and keeps a state so that it has sequences."""
    lane = {"steps": (np.int64, []), "before": (np.int32, [1]), "after": (F32, [1, 1])}
    return model(
        *(op("Identity", f"{name} -> {name}_y") for name in lane),
        op("ReduceSum", f"{x} one -> sum", keepdims=0),
        op("Add", "s sum -> s_out"),
        inputs=[
            tensor(x, F32, "batch", "rows", 2),
            tensor("s", F32, "batch", 2),
            *(tensor(name, dtype, "batch", *dims) for name, (dtype, dims) in lane.items()),
        ],
        outputs=[
            tensor("s_out", F32, "batch", 2),
            *(tensor(f"{name}_y", dtype, "batch", *dims) for name, (dtype, dims) in lane.items()),
        ],
        constants={"one": np.array([1])},
    )


def listed(initial: str = "") -> str:
    """The scheduler with the cache as Triton's implicit state has it."""
    return oldest(3, f'state [{{ input_name: "past" output_name: "present" data_type: TYPE_FP32 dims: [-1, 2] {initial} }}]')


ROWS, SUM = io("x", "FP32", -1, 2), io("y", "FP32", 2)
LIMIT = 10 * 2 * 4  # bytes of ten rows

SCHEDULERS = ["oldest", "direct", "free"]

MODELS = {
    "grows": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>"), cache()),
    "grows_inside": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>"), cache(1)),
    "grows_alone": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>", batch_axes="* = none"), cache(None)),
    "shown": Folder(config([ROWS], [SUM, io("present", "FP32", -1, 2)], state_pairs="<<<past, present>>>"), cache()),
    "begins_long": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>", initial_states="past = 0.5[3,2]"), cache()),
    "begins_with_one": Folder(config([ROWS], [SUM, io("present", "FP32", -1, 2)], listed()), cache()),
    "begins_with_dims": Folder(
        config(
            [ROWS],
            [SUM, io("present", "FP32", -1, 2)],
            listed('initial_state: { name: "i" data_type: TYPE_FP32 dims: [2, 2] zero_data: true }'),
        ),
        cache(),
    ),
    "limited": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>", max_state_bytes=str(LIMIT)), cache()),
    "two_caches": Folder(config([ROWS], [SUM, io("s_out", "FP32", 2)]), two_caches()),
    "matting": Folder(
        config(
            [io("src", "FP32", 1, -1, -1)],
            [io("pha", "FP32", 1, -1, -1)],
            initial_states="r1i = 0[1,1,1]",
            state_pairs="<<<r1i, r1o>>>",
        ),
        matting(),
    ),
    "counters": Folder(
        config(
            [ROWS],
            [io("steps_y", "INT64"), io("before_y", "INT32", 1), io("after_y", "FP32", 1, 1)],
            derived_inputs="steps = steps; before = length_before(x); after = length_after(x:1)",
        ),
        counters(),
    ),
    "colons": Folder(
        config(
            [io("x:0", "FP32", -1, 2)],
            [io("steps_y", "INT64"), io("before_y", "INT32", 1), io("after_y", "FP32", 1, 1)],
            derived_inputs="steps = steps; before = length_before(x:0); after = length_after(x:0:1)",
        ),
        counters("x:0"),
    ),
}


def rows(*counts: int, first: int = 0) -> list[Tensors]:
    """Requests with these numbers of rows, of whole numbers that tell which they are."""
    return [{"x": np.full((1, count, 2), [1 + first + step, 100], F32)} for step, count in enumerate(counts)]


# Mostly one row in a request, so that Triton puts them into one batch, of sequences that are of different length.
UNEQUAL = [rows(1, 1, 1, 1), rows(2, 1, 1, 1, first=10), rows(1, 1, 1, first=20), rows(3, 1, 1, 1, 1, first=30)]


@pytest.mark.parametrize(
    ("name", "axis"), [("grows", 0), ("grows_inside", 1), ("grows_alone", None), ("two_caches", 0), ("begins_long", 0)]
)
def test_sequences_of_unequal_length(own_client, name, axis):
    """Sequences whose caches differ in length meet in one batch of Triton's."""
    states = {"slow": "slow_out", "fast": "fast_out", "s": "s_out"} if name == "two_caches" else GROWING
    initial = {"past": np.full((1, 3, 2), 0.5, F32)} if name == "begins_long" else {}
    if axis is None:
        initial = {"past": np.zeros((0, 2), F32)}
    elif axis == 1:
        initial = {"past": np.zeros((0, 1, 2), F32)}
    axes = {"x": axis, "y": axis and 0, "length": None}
    check(own_client, name, Reference(MODELS[name].onnx, states, initial, axes=axes), UNEQUAL)


@pytest.mark.parametrize(("name", "length"), [("begins_with_one", 1), ("begins_with_dims", 2)])
def test_the_list_begins_as_tritons_own_states(own_client, name, length):
    """Triton's implicit state has 1 for a wildcard, or the dims of initial_state."""
    for _ in range(2):
        answer = infer(own_client, name, 5, *rows(1), start=True)
        np.testing.assert_array_equal(answer["present"], [[*[[0, 0]] * length, [1, 100]]])


def test_state_in_the_answer(own_client):
    """A state that output lists is sent, whatever its size is by now."""
    check(own_client, "shown", Reference(MODELS["shown"].onnx, GROWING, axes={"length": None}), UNEQUAL)


def test_shape_changes_after_the_first_step(own_client):
    """The state is [1, 1, 1] at first; then as large as the picture says, which may change on the way."""
    random = np.random.default_rng(0)
    sizes = [[(4, 6)] * 4, [(4, 6)] * 4, [(8, 2)] * 3, [(4, 6), (2, 2), (6, 6)]]
    sequences = [[{"src": random.integers(0, 256, (1, 1, *size)).astype(F32)} for size in sequence] for sequence in sizes]
    reference = Reference(MODELS["matting"].onnx, {"r1i": "r1o"}, {"r1i": np.zeros((1, 1, 1, 1), F32)})
    check(own_client, "matting", reference, sequences, tolerance=1e-5)


def test_limit(own_client):
    """A request beyond the limit is refused; the sequence stays as it was, and can go on with less."""
    steps = rows(6, 4, 1)
    (want,) = [Reference(MODELS["limited"].onnx, GROWING, axes={"length": None}).answers([steps[0], steps[2]])]
    ((first,),) = play(own_client, "limited", [steps[:1]], end=False, ids=[9])
    np.testing.assert_array_equal(first["y"], want[0]["y"])
    with pytest.raises(InferenceServerException, match=r'state "past" would grow to 88 bytes .*\(max_state_bytes\)'):
        infer(own_client, "limited", 9, *rows(5))
    last = infer(own_client, "limited", 9, steps[2], end=True)
    np.testing.assert_array_equal(last["y"], want[1]["y"])


def test_limit_of_one_leaves_others_alone(own_client):
    """One sequence of a batch is refused, and those of other lengths in the same batch are answered."""
    ids = [21, 22, 23]
    play(own_client, "limited", [rows(10), rows(1), rows(1)], end=False, ids=ids)
    with ThreadPoolExecutor(3) as pool:
        results = [pool.submit(infer, own_client, "limited", sequence, *rows(1), end=True) for sequence in ids]
    with pytest.raises(InferenceServerException, match="would grow to 88 bytes"):
        results[0].result()
    for result in results[1:]:
        np.testing.assert_array_equal(result.result()["y"], [[2, 200]])


def test_limit_of_the_first_request(own_client):
    """A sequence whose START is refused does not exist."""
    with pytest.raises(InferenceServerException, match="would grow to 88 bytes"):
        infer(own_client, "limited", 31, *rows(11), start=True)
    with pytest.raises(InferenceServerException, match="sequence 31: its START failed"):
        infer(own_client, "limited", 31, *rows(1), end=True)


MIB = 2**20


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_given_back(own_server, own_client):
    """Sequences of 8 MiB each come and go; together they would be 100 MiB, in blocks of twice that."""
    large = {"x": np.ones((1, MIB, 2), F32)}

    def live() -> None:
        infer(own_client, "grows", 41, large, start=True)
        infer(own_client, "grows", 41, *rows(1), end=True)

    for _ in range(3):
        live()
    before = resident(own_server.pid)
    for _ in range(12):
        live()
    assert resident(own_server.pid) - before < 64 * MIB


@pytest.mark.parametrize(("name", "x"), [("counters", "x"), ("colons", "x:0")])  # a name as tf2onnx makes them
def test_derived_inputs(own_client, name, x):
    """The number of steps, and the summed lengths of an input, in the types and shapes that the model has."""
    counts = [[1, 1, 1], [3, 1, 2], [2, 1, 1, 1], [1, 1]]
    answers = play(own_client, name, [[{x: step["x"]} for step in rows(*each)] for each in counts])
    for lengths, answered in zip(counts, answers, strict=True):
        for step, answer in enumerate(answered):
            before, after = sum(lengths[:step]), sum(lengths[: step + 1])
            np.testing.assert_array_equal(answer["steps_y"], np.array([[step]]), strict=True)
            np.testing.assert_array_equal(answer["before_y"], np.array([[before]], np.int32), strict=True)
            np.testing.assert_array_equal(answer["after_y"], np.array([[[after]]], F32), strict=True)


def test_derived_inputs_start_over(own_client):
    play(own_client, "counters", [rows(2, 3)], end=False, ids=[51])
    (answers,) = play(own_client, "counters", [rows(1, 1)], ids=[51])
    assert [int(answer["steps_y"][0, 0]) for answer in answers] == [0, 1]
    assert [int(answer["before_y"][0, 0]) for answer in answers] == [0, 1]
