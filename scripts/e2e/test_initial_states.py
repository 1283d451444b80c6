"""What a state is when its sequence starts."""

import io as files

import numpy as np
import pytest
from onnx import ModelProto, helper

from configs import config, io, oldest
from conftest import Folder
from graphs import BF16, delay, model, op, tensor
from report import load_report
from sequences import Reference, check, play

F32 = np.float32
ARRAY = np.array([[1, -2, 3], [0.5, np.inf, 0]], F32)
STATES = {"s": "s_out"}
X, Y = io("x", "FP32", 2, 3), io("y", "FP32", 2, 3)


def npy(array: np.ndarray, **options) -> bytes:
    content = files.BytesIO()
    np.lib.format.write_array(content, array, **options)
    return content.getvalue()


def told_of_start() -> ModelProto:
    """Sees the START flag and the initial value: y = s + 100 * START, and s' = x."""
    return model(
        op("Cast", "START -> started", to=1),
        op("Mul", "started hundred -> more"),
        op("Add", "s more -> y"),
        op("Identity", "x -> s_out"),
        inputs=[tensor("x", F32, "batch", 3), tensor("s", F32, "batch", 3), tensor("START", bool, "batch", 1)],
        outputs=[tensor("y", F32, "batch", 3), tensor("s_out", F32, "batch", 3)],
        constants={"hundred": F32(100)},
    )


START = 'control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }]'


def listed(*initial: str) -> str:
    """A state with initial_state as for Triton's implicit state."""
    values = "".join(f"initial_state: {{ {each} }} " for each in initial)
    return oldest(3, f'state [{{ input_name: "s" output_name: "s_out" data_type: TYPE_FP32 dims: [2, 3] {values} }}]')


def described(name: str, how: str) -> str:
    return f'name: "{name}" data_type: TYPE_FP32 dims: [2, 3] {how}'


RAW, NPY = {"initial_state/raw.bin": ARRAY.tobytes()}, {"initial_state/array.npy": npy(ARRAY)}
DATA_FILE = 'data_file: "raw.bin"'

# By name: the model's folder and what the state is at first. Delays answer with it.
CASES = {
    "zeros": (Folder(config([X], [Y]), delay(F32, 2, 3)), np.zeros((2, 3))),
    "zero_data": (
        Folder(config([X], [Y], listed(described("z", "zero_data: true"))), delay(F32, 2, 3)),
        np.zeros((2, 3)),
    ),
    "number": (Folder(config([X], [Y], initial_states="s = -2.5"), delay(F32, 2, 3)), np.full((2, 3), -2.5)),
    "nan": (Folder(config([X], [Y], initial_states="s = nan"), delay(F32, 2, 3)), np.full((2, 3), np.nan)),
    "raw_file": (Folder(config([X], [Y], initial_states="s = file:raw.bin"), delay(F32, 2, 3), RAW), ARRAY),
    "npy_file": (Folder(config([X], [Y], initial_states="s = file:array.npy"), delay(F32, 2, 3), NPY), ARRAY),
    "inner_batch": (Folder(config([X], [Y], initial_states="s = file:raw.bin"), delay(F32, 2, 3, axis=1), RAW), ARRAY),
    "data_file": (Folder(config([X], [Y], listed(described("d", DATA_FILE))), delay(F32, 2, 3), RAW), ARRAY),
    "long_data_file": (
        Folder(
            config([X], [Y], listed(described("d", DATA_FILE))),
            delay(F32, 2, 3),
            {"initial_state/raw.bin": ARRAY.tobytes() + bytes(5)},
        ),
        ARRAY,
    ),
    "bf16": (
        Folder(config([io("x", "BF16", 2)], [io("y", "BF16", 2)], initial_states="s = 0.1"), delay(BF16, 2)),
        np.full(2, 0.1),
    ),
    "length_without_axis": (
        Folder(config([io("x", "INT64")], [io("y", "INT64")], initial_states="s = 80"), delay(np.int64)),
        np.array(80),
    ),
}

MODELS = {name: folder for name, (folder, _) in CASES.items()} | {
    "told": Folder(config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(3, START), initial_states="s = 7"), told_of_start())
}


@pytest.mark.parametrize("name", CASES)
def test_first_answer(own_client, name):
    folder, value = CASES[name]
    axis = 1 if name == "inner_batch" else 0
    typed = np.expand_dims(value.astype(reference_type(folder.onnx)), axis)
    random = np.random.default_rng(0)
    shape = (1, *(value.shape or (1,)))
    sequences = [[{"x": random.integers(0, 2, shape).astype(typed.dtype)} for _ in range(3)] for _ in range(3)]
    reference = Reference(folder.onnx, STATES, {"s": typed}, axes={"x": axis, "y": axis})
    check(own_client, name, reference, sequences)


def reference_type(of: ModelProto) -> np.dtype:
    return helper.tensor_dtype_to_np_dtype(of.graph.input[0].type.tensor_type.elem_type)


def test_again_at_every_start(own_client):
    """A START starts over, also in a slot that others have used and on an ID that is still open."""
    ones = [{"x": np.ones((1, 2, 3), F32)}] * 2
    for _ in range(3):
        ((first, second),) = play(own_client, "raw_file", [ones], end=False, ids=[5])
        np.testing.assert_array_equal(first["y"][0], ARRAY)
        np.testing.assert_array_equal(second["y"], ones[0]["x"])
    play(own_client, "raw_file", [ones[:1]], ids=[5])


def test_with_a_reset_input(own_client):
    """A model that is told of a start gets the initial value all the same."""

    reference = Reference(
        MODELS["told"].onnx, STATES, {"s": np.full((1, 3), 7, F32)}, given=lambda steps: {"START": np.array([[len(steps) == 1]])}
    )
    sequences = [[{"x": np.full((1, 3), 10 * at + step, F32)} for step in range(3)] for at in range(3)]
    check(own_client, "told", reference, sequences)


@pytest.mark.parametrize(
    ("name", "words"),
    [("zeros", "begins with zeros"), ("nan", "begins with nan"), ("raw_file", "begins with file raw.bin")],
)
def test_report_tells_the_value(own_server, name, words):
    assert words in load_report(own_server, name)


def test_a_long_data_file_is_warned_of(own_server):
    """Triton takes the first bytes, too."""
    assert 'the first 24 bytes of file "raw.bin"' in own_server.log_text().replace("\\", "")


def refused(value: str, content: dict[str, bytes] | None = None) -> Folder:
    return Folder(config([X], [Y], initial_states=value), delay(F32, 2, 3), content or {})


REFUSED = {
    "no_file": (refused("s = file:other.bin", RAW), ('file "other.bin"', "initial_state")),
    "short_file": (
        refused("s = file:raw.bin", {"initial_state/raw.bin": bytes(20)}),
        ("has 20 bytes: want 24 for shape [1,2,3] of FP32",),
    ),
    "other_shape": (
        refused("s = file:a.npy", {"initial_state/a.npy": npy(ARRAY.T.copy())}),
        ("[3,2]", "does not fit the state's [1,2,3]"),
    ),
    "different_values": (
        Folder(
            config([X], [Y], listed(described("z", "zero_data: true"), described("d", DATA_FILE))),
            delay(F32, 2, 3),
            RAW,
        ),
        ('"z" and "d" differ', "one initial value"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(refusal, name):
    folder, words = REFUSED[name]
    message = refusal(name, folder)
    for word in words:
        assert word in message
