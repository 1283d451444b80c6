"""The batch stands on any axis of any tensor, or on none."""

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, io, oldest
from conftest import Folder
from graphs import delay, model, op, running_sum, tensor
from report import load_report
from sequences import Reference, check

F32 = np.float32
STATES = {"s": "s_out"}


def mixed() -> ModelProto:
    """States with the batch on axes 0, 1 and 2, an input with it on axis 1 and an output with it on axis 2."""
    shapes = {"a": ["batch", 2, 3], "b": [2, "batch", 3], "c": [2, 3, "batch"]}
    return model(
        op("Transpose", "x -> xa", perm=[1, 0, 2]),
        op("Add", "a xa -> a_out"),
        op("Add", "b x -> b2"),
        op("Mul", "b2 two -> b_out"),
        op("Transpose", "x -> xc", perm=[0, 2, 1]),
        op("Sub", "xc c -> c_out"),
        op("Transpose", "a_out -> at", perm=[1, 2, 0]),
        op("Transpose", "b_out -> bt", perm=[0, 2, 1]),
        op("Add", "at bt -> sum"),
        op("Add", "sum c_out -> y"),
        inputs=[tensor("x", F32, 2, "batch", 3), *(tensor(name, F32, *dims) for name, dims in shapes.items())],
        outputs=[
            tensor("y", F32, 2, 3, "batch"),
            *(tensor(f"{name}_out", F32, *dims) for name, dims in shapes.items()),
        ],
        constants={"two": F32(2)},
    )


def misleading() -> ModelProto:
    """More tensors have an axis named time than one named batch; and states whose axes have no names at all."""
    return model(
        op("Add", "s x -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("x", F32, "time", "batch", 3), tensor("s", F32, None, None, 3)],
        outputs=[tensor("y", F32, "time", "rows", 3), tensor("s_out", F32, None, None, 3)],
    )


def nameless() -> ModelProto:
    """No axis has a name, and the input has two dynamic ones; only with the first as the batch it can run."""
    return model(
        op("ReduceSum", "x one -> sum", keepdims=0),
        op("Add", "s sum -> s_out"),
        op("Gather", "s_out last -> y"),
        inputs=[tensor("x", F32, None, None, 3), tensor("s", F32, 2, None, 3)],
        outputs=[tensor("y", F32, None, 3), tensor("s_out", F32, 2, None, 3)],
        constants={"one": np.array([1]), "last": np.array(1)},
    )


def over_time(*dims: int | str | None, state: int | str | None) -> ModelProto:
    """Sums up over axis 0, also from request to request."""
    return model(
        op("CumSum", "x first -> sums"),
        op("Add", "sums s -> y"),
        op("Slice", "y last end axis -> s_out"),
        inputs=[tensor("x", F32, *dims), tensor("s", F32, 1, state, 3)],
        outputs=[tensor("y", F32, *dims), tensor("s_out", F32, 1, state, 3)],
        constants={"first": np.array(0), "last": np.array([-1]), "end": np.array([2**31]), "axis": np.array([0])},
    )


def mixing() -> ModelProto:
    """The only dynamic axis is no batch: later elements see earlier ones."""
    return model(
        op("CumSum", "x first -> sums"),
        op("Add", "sums s -> y"),
        op("Identity", "y -> s_out"),
        inputs=[tensor("x", F32, None, 3), tensor("s", F32, None, 3)],
        outputs=[tensor("y", F32, None, 3), tensor("s_out", F32, None, 3)],
        constants={"first": np.array(0)},
    )


def rate(*dims: int | str) -> ModelProto:
    """Like Silero VAD, it is told the sampling rate: y = s' = s + x * rate."""
    scale = [op("Cast", "sr -> rate", to=1), op("Mul", "x rate -> scaled")]
    return running_sum("batch", 3, nodes=scale, term="scaled", inputs=[tensor("sr", np.int64, *dims)])


X, Y = io("x", "FP32", 2, 3), io("y", "FP32", 2, 3)
ROW, ROW_OUT = io("x", "FP32", 3), io("y", "FP32", 3)
SR = np.array(16000)


def given_rate(steps):
    return {"sr": SR}


# By name: the model's folder, its reference, and whether several sequences run together; False where they cannot.
CASES = {
    **{
        f"axis_{axis}": (
            Folder(config([X], [Y]), delay(F32, 2, 3, axis=axis)),
            {"states": STATES, "axes": {"x": axis, "y": axis}},
            True,
        )
        for axis in (0, 1, 2)
    },
    "mixed": (
        Folder(config([X], [io("y", "FP32", 2, 3)]), mixed()),
        {"states": {name: f"{name}_out" for name in "abc"}, "axes": {"x": 1, "y": 2}},
        True,
    ),
    "only_dynamic_axis": (
        Folder(config([X], [Y]), running_sum(2, None, 3)),
        {"states": STATES, "axes": {"x": 1, "y": 1}, "initial": {"s": np.zeros((2, 1, 3), F32)}},
        True,
    ),
    "overridden": (
        Folder(
            config([X], [Y], batch_axes="x = 1; y = 1; s* = 1", initial_states="s = 0[2,3]"),
            misleading(),
        ),
        {"states": STATES, "axes": {"x": 1, "y": 1}, "initial": {"s": np.zeros((2, 1, 3), F32)}},
        True,
    ),
    "probed": (
        Folder(config([io("x", "FP32", -1, 3)], [io("y", "FP32", 3)]), nameless()),
        {"states": STATES, "initial": {"s": np.zeros((2, 1, 3), F32)}},
        True,
    ),
    "as_implicit_state": (
        Folder(
            config(
                [io("x", "FP32", 2, 3)],
                [io("y", "FP32", 2, 3)],
                oldest(
                    more='state [{ input_name: "s" output_name: "s_out" data_type: TYPE_FP32 dims: [2, 3] '
                    'initial_state { data_type: TYPE_FP32 dims: [2, 3] zero_data: true name: "zero" } }]'
                ),
            ),
            running_sum(None, None, 3),
        ),
        {"states": STATES, "initial": {"s": np.zeros((1, 2, 3), F32)}},
        True,
    ),
    "time_has_a_name": (
        Folder(config([io("x", "FP32", -1, 3)], [io("y", "FP32", -1, 3)]), over_time("time", None, 3, state=None)),
        {"states": STATES, "axes": {"x": 1, "y": 1}, "initial": {"s": np.zeros((1, 1, 3), F32)}},
        True,
    ),
    "fixed_after_time": (
        Folder(config([io("x", "FP32", -1, 3)], [io("y", "FP32", -1, 3)]), over_time("time", 1, 3, state=1)),
        {"states": STATES, "axes": {"x": 1, "y": 1}},
        False,
    ),
    "fixed_and_told": (
        Folder(
            config([io("x", "FP32", 2, 3)], [io("y", "FP32", 2, 3)], batch_axes="x = 1; y = 1"),
            over_time("time", 1, 3, state=1),
        ),
        {"states": STATES, "axes": {"x": 1, "y": 1}},
        False,
    ),
    "fixed": (
        Folder(config([ROW], [ROW_OUT]), running_sum(1, 3)),
        {"states": STATES},
        False,
    ),
    "no_axis": (
        Folder(config([X], [Y], batch_axes="* = none"), running_sum(2, 3)),
        {"states": STATES, "axes": {"x": None, "y": None}},
        False,
    ),
    "no_batching": (
        Folder(
            config([io("x", "FP32", 1, 2, 3)], [io("y", "FP32", 1, 2, 3)], oldest(0), batch=0),
            running_sum("batch", 2, 3),
        ),
        {"states": STATES, "rows": False},
        False,
    ),
    "constant_scalar": (
        Folder(config([ROW], [ROW_OUT], constant_inputs="sr = 16000"), rate()),
        {"states": STATES, "given": given_rate},
        True,
    ),
    "constant_element": (
        Folder(config([ROW], [ROW_OUT], constant_inputs="sr = 16000"), rate(1)),
        {"states": STATES, "given": lambda steps: {"sr": SR.reshape(1)}},
        True,
    ),
    "constant_for_each_lane": (
        Folder(config([ROW], [ROW_OUT], constant_inputs="sr = 16000"), rate("batch", 1)),
        {"states": STATES, "given": lambda steps: {"sr": SR.reshape(1, 1)}},
        True,
    ),
    "shared_input": (
        Folder(config([ROW, io("sr", "INT64")], [ROW_OUT]), rate()),
        {"states": STATES, "axes": {"sr": None}},
        True,
    ),
}

MODELS = {name: folder for name, (folder, _, _) in CASES.items()}


def request(name: str, sequence: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Whole numbers in the shapes of the configuration."""
    shape = (1, 3) if '"x" data_type: TYPE_FP32 dims: [3]' in MODELS[name].config else (1, 2, 3)
    values = {"x": random.integers(-9, 10, shape).astype(F32)}
    if name == "shared_input":
        values["sr"] = np.array([[8000 if sequence % 2 else 16000]])
    return values


@pytest.mark.parametrize("name", CASES)
def test_axis(own_client, name):
    folder, reference, batched = CASES[name]
    random = np.random.default_rng(0)
    sequences = [[request(name, at, random) for _ in range(4)] for at in range(3)]
    check(own_client, name, Reference(folder.onnx, **reference), sequences, batched=batched)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("axis_2", 's -> s_out state from the names in the model, begins with zeros FP32 [2,3,-1] 2, axis "batch" 24'),
        ("only_dynamic_axis", "FP32 [2,-1,3] 1, its only dynamic axis 24"),
        ("probed", "FP32 [2,-1,3] 1, found by runs 24"),
        ("as_implicit_state", "FP32 [-1,-1,3] 0, the first axis, as Triton has it 24"),
        ("time_has_a_name", "FP32 [1,-1,3] 1, found by runs 12"),
        ("fixed_and_told", 'one at a time: "x" has a batch axis'),
        ("fixed_after_time", 'one at a time: "x" has a batch axis'),
        ("overridden", "FP32 [-1,-1,3] 1, batch_axes"),
        ("fixed", 'one at a time: "s" has no batch axis'),
        ("no_axis", 'one at a time: "s" has no batch axis'),
        ("no_batching", "one at a time: max_batch_size is 0"),
        ("shared_input", "sr input INT64 [] none 8"),
        ("constant_scalar", "sr constant INT64 [] none 8"),
    ],
)
def test_report_tells_the_axis(own_server, name, words):
    assert words in load_report(own_server, name)


def test_probe_runs_log_no_errors(own_server):
    """Some of them fail, which is how the batch axis is found."""
    assert "onnxruntime: probed" not in own_server.log_text()


REFUSED = {
    "several_axes": (
        Folder(config([X], [Y]), running_sum(None, None, 3)),
        ("string_value: 's = 0[1,1,3]'", 'axis 1 of "s"', "batch_axes"),
    ),
    "lanes_are_not_apart": (
        Folder(config([ROW], [ROW_OUT]), mixing()),
        (
            "would not be independent",
            'output "s_out" of one request changes',
            'axis 0 of "x"',
            "batch_axes",
        ),
    ),
    "bad_constant": (
        Folder(config([ROW], [ROW_OUT], constant_inputs="sr = fast"), rate()),
        ("constant_inputs", 'input "sr"', '"fast" is not a value of type INT64'),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(refusal, name):
    folder, words = REFUSED[name]
    message = refusal(name, folder)
    for word in words:
        assert word in message
