"""States whose shapes change: caches that grow from nothing, and models that choose their states' shapes."""

import urllib.request

import numpy as np
import pytest
from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from onnx import ModelProto
from sequences import Reference, Tensors, check, play
from tritonclient.utils import InferenceServerException
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
        outputs=[tensor("y", F32, *lane, 2), tensor("present", F32, *(f"new_{d}" if d == "past" else d for d in past)), tensor("length", np.int64, 1)],
        constants={"time": np.array([time])},
    )


def two_caches() -> ModelProto:
    """One grows by what is sent, one by twice that; beside them is a state that does not grow."""
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
        inputs=[tensor("x", F32, "batch", "rows", 2), tensor("s", F32, "batch", 2), *(tensor(n, F32, *d) for n, d in shapes.items())],
        outputs=[
            tensor("y", F32, "batch", 2),
            tensor("s_out", F32, "batch", 2),
            tensor("slow_out", F32, "batch", "slow_total", 2),
            tensor("fast_out", F32, "batch", 2, "fast_total"),
        ],
        constants={"one": np.array([1]), "two": np.array([2])},
    )


def matting() -> ModelProto:
    """Like robust video matting: the state is one element at first, and then half as large as the picture."""
    return model(
        op("AveragePool", "src -> half", kernel_shape=[2, 2], strides=[2, 2]),
        op("ReduceMean", "r1i -> before", axes=[2, 3], keepdims=1),
        op("Add", "half before -> r1o"),
        op("Sub", "src before -> pha"),
        inputs=[tensor("src", F32, "batch", 1, "height", "width"), tensor("r1i", F32, "batch", 1, "r_height", "r_width")],
        outputs=[tensor("pha", F32, "batch", 1, "height", "width"), tensor("r1o", F32, "batch", 1, "half_height", "half_width")],
    )  # fmt: skip


def counters() -> ModelProto:
    """Tells every number that the backend can derive, and keeps a state so that it has sequences."""
    lane = {"steps": (np.int64, []), "before": (np.int32, [1]), "after": (F32, [1, 1])}
    return model(
        *(op("Identity", f"{name} -> {name}_y") for name in lane),
        op("ReduceSum", "x one -> sum", keepdims=0),
        op("Add", "s sum -> s_out"),
        inputs=[
            tensor("x", F32, "batch", "rows", 2),
            tensor("s", F32, "batch", 2),
            *(tensor(name, dtype, "batch", *dims) for name, (dtype, dims) in lane.items()),
        ],
        outputs=[
            tensor("s_out", F32, "batch", 2),
            *(tensor(f"{name}_y", dtype, "batch", *dims) for name, (dtype, dims) in lane.items()),
        ],
        constants={"one": np.array([1])},
    )


ROWS, SUM = io("x", "FP32", -1, 2), io("y", "FP32", 2)
LIMIT = 10 * 2 * 4  # bytes of ten rows

MODELS = {
    "grows": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>"), cache()),
    "grows_inside": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>"), cache(1)),
    "grows_alone": Folder(config([ROWS], [SUM], state_pairs="<<<past, present>>>"), cache(None)),
    "shown": Folder(config([ROWS], [SUM, io("present", "FP32", -1, 2)], state_pairs="<<<past, present>>>"), cache()),
    "begins_long": Folder(
        config([ROWS], [SUM], state_pairs="<<<past, present>>>", initial_states="past = 0.5[3,2]"), cache()
    ),
    "limited": Folder(
        config([ROWS], [SUM], state_pairs="<<<past, present>>>", max_state_bytes=str(LIMIT)), cache()
    ),
    "two_caches": Folder(config([ROWS], [SUM, io("s_out", "FP32", 2)]), two_caches()),
    "matting": Folder(
        config([io("src", "FP32", 1, -1, -1)], [io("pha", "FP32", 1, -1, -1)], initial_states="r1i = 0[1,1,1]",
               state_pairs="<<<r1i, r1o>>>"),
        matting(),
    ),
    "counters": Folder(
        config(
            [ROWS], [io("steps_y", "INT64"), io("before_y", "INT32", 1), io("after_y", "FP32", 1, 1)],
            derived_inputs="steps = steps; before = length_before(x); after = length_after(x:1)",
        ),
        counters(),
    ),
}  # fmt: skip


def rows(*counts: int, first: int = 0) -> list[Tensors]:
    """Requests of so many rows each, of whole numbers that tell which they are."""
    return [{"x": np.full((1, count, 2), 1 + first + step, F32) * [1, 100]} for step, count in enumerate(counts)]


def as_f32(steps: list[Tensors]) -> list[Tensors]:
    return [{name: value.astype(F32) for name, value in step.items()} for step in steps]


# Sequences of equal rows per request, so that Triton batches them, but of lengths that part on the way.
UNEQUAL = [as_f32(rows(1, 1, 1, 1)), as_f32(rows(2, 1, 1, 1, first=10)), as_f32(rows(1, 1, 1, first=20)), as_f32(rows(3, 1, 1, 1, 1, first=30))]


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
    axes = {"x": axis, "y": 0 if axis == 1 else axis, "present": axis, "length": None}
    check(own_client, name, Reference(MODELS[name].onnx, states, initial, axes=axes), UNEQUAL)
