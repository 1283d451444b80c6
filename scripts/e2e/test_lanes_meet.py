"""Models whose lanes meet only by what is easily left out of a trial: values below 0, controls and derived inputs that
differ between sequences, masks, long axes. None is served with several requests in a run."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from sequences import Reference, play
from test_masks import mask
from unary import infer

F32 = np.float32
STATE, STATE_OUT = tensor("s", F32, "batch", 3), tensor("s_out", F32, "batch", 3)
X, Y = tensor("x", F32, "batch", 3), tensor("y", F32, "batch", 3)
X_ROWS, Y_ROWS = io("x", "FP32", 3), io("y", "FP32", 3)
FIRST = {"from": np.array([0]), "to": np.array([1])}  # the first lane


def below_zero() -> ModelProto:
    """The largest of what is below 0 goes into all answers."""
    return model(
        op("Add", "s x -> s_out"),
        op("Neg", "s_out -> negative"),
        op("Relu", "negative -> below"),
        op("ReduceMax", "below -> most", axes=[0], keepdims=1),
        op("Add", "s_out most -> y"),
        inputs=[X, STATE],
        outputs=[Y, STATE_OUT],
    )


def compacted() -> ModelProto:
    """What is above 0 moves to the front, where other lanes are."""
    return model(
        op("Greater", "x zero -> more"),
        op("Squeeze", "more one -> above"),
        op("Compress", "x above -> kept", axis=0),
        op("Sub", "x x -> nothing"),
        op("Concat", "kept nothing -> all", axis=0),
        op("Shape", "x -> shape"),
        op("Slice", "shape from to -> lanes"),
        op("Slice", "all from lanes from -> moved"),
        op("Add", "moved s -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("x", F32, "batch", 1), tensor("s", F32, "batch", 1)],
        outputs=[tensor("y", F32, "batch", 1), tensor("s_out", F32, "batch", 1)],
        constants={"zero": np.array(0, F32), "one": np.array([1]), **FIRST},
    )


def any_control(reduce: str, name: str) -> ModelProto:
    """One control for all lanes, as any(start) or all(start) makes it: it clears what they have."""
    return model(
        op(reduce, f"{name} -> control", axes=[0], keepdims=1),
        op("Sub", "one control -> keep"),
        op("Mul", "s keep -> kept"),
        op("Add", "kept x -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[X, STATE, tensor(name, F32, "batch", 1)],
        outputs=[Y, STATE_OUT],
        constants={"one": np.array(1, F32)},
    )


def first_position() -> ModelProto:
    """A cache of a fixed length, which all lanes write at the position of the first."""
    return model(
        op("Slice", "position from to from -> first"),
        op("Equal", "places first -> here"),
        op("Where", "here x s -> s_out"),
        op("ReduceSum", "s_out to -> y", keepdims=1),
        inputs=[tensor("x", F32, "batch", 1), tensor("s", F32, "batch", 16), tensor("position", np.int64, "batch", 1)],
        outputs=[tensor("y", F32, "batch", 1), tensor("s_out", F32, "batch", 16)],
        constants={"places": np.arange(16)[np.newaxis], **FIRST},
    )


def first_mask(dtype: type) -> ModelProto:
    """The mask of the first lane holds for all."""
    return model(
        op("Slice", "mask from to from -> first"),
        op("Cast", "first -> seen", to=1),
        op("Mul", "x seen -> shown"),
        op("Add", "s shown -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[X, STATE, tensor("mask", dtype, "batch", 3)],
        outputs=[Y, STATE_OUT],
        constants=FIRST,
    )


def long_only() -> ModelProto:
    """With more than 16 rows, the lanes are summed."""
    return model(
        op("Shape", "x -> shape"),
        op("Gather", "shape second -> rows"),
        op("Greater", "rows many -> long"),
        op("Cast", "long -> factor", to=1),
        op("ReduceSum", "x to -> sum", keepdims=0),
        op("ReduceSum", "sum from -> all", keepdims=1),
        op("Mul", "all factor -> others"),
        op("Add", "sum others -> step"),
        op("Add", "s step -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("x", F32, "batch", "rows", 3), STATE],
        outputs=[Y, STATE_OUT],
        constants={"second": np.array(1), "many": np.array(16), **FIRST},
    )


def integers_below_zero() -> ModelProto:
    """The least integer below 0 of all lanes is in every answer."""
    return model(
        op("Cast", "x -> numbers", to=1),
        op("Neg", "numbers -> turned"),
        op("Relu", "turned -> low"),
        op("ReduceMax", "low -> lowest", axes=[0], keepdims=1),
        op("Add", "s numbers -> s_out"),
        op("Add", "s_out lowest -> y"),
        inputs=[tensor("x", np.int64, "batch", 3), STATE],
        outputs=[Y, STATE_OUT],
    )


def control(name: str, kind: str) -> str:
    kind = f"kind: CONTROL_SEQUENCE_{kind} fp32_false_true: [0, 1]"
    return oldest(4, f'control_input [{{ name: "{name}" control [{{ {kind} }}] }}]')


START, END = control("start", "START"), control("end", "END")
ONE, ONE_OUT = io("x", "FP32", 1), io("y", "FP32", 1)
REFUSED = {
    "meet_below_zero": Folder(config([X_ROWS], [Y_ROWS]), below_zero),
    "meet_integers_below_zero": Folder(config([io("x", "INT64", 3)], [Y_ROWS]), integers_below_zero),
    "meet_compacted": Folder(config([ONE], [ONE_OUT]), compacted),
    "meet_any_start": Folder(config([X_ROWS], [Y_ROWS], START), lambda: any_control("ReduceMax", "start")),
    "meet_all_start": Folder(config([X_ROWS], [Y_ROWS], START), lambda: any_control("ReduceMin", "start")),
    "meet_any_end": Folder(config([X_ROWS], [Y_ROWS], END), lambda: any_control("ReduceMax", "end")),
    "meet_position": Folder(config([ONE], [ONE_OUT], derived_inputs="position = steps"), first_position),
    "meet_mask": Folder(config([X_ROWS, io("mask", "FP32", 3)], [Y_ROWS]), lambda: first_mask(F32)),
    "meet_bool_mask": Folder(config([X_ROWS, io("mask", "BOOL", 3)], [Y_ROWS]), lambda: first_mask(np.bool_)),
    "meet_long": Folder(config([io("x", "FP32", -1, 3)], [Y_ROWS]), long_only),
}


@pytest.mark.parametrize("name", REFUSED)
def test_lanes_that_meet_are_refused(refusal, name):
    assert "would not be independent" in refusal(name, REFUSED[name])


def apart_by_control() -> ModelProto:
    """Each lane's own START clears it, as it should."""
    return model(
        op("Sub", "one start -> keep"),
        op("Mul", "s keep -> kept"),
        op("Add", "kept x -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[X, STATE, tensor("start", F32, "batch", 1)],
        outputs=[Y, STATE_OUT],
        constants={"one": np.array(1, F32)},
    )


def pooled() -> ModelProto:
    """The largest number of all rows so far: a hidden row counts as 0, which is more than any below 0."""
    return model(
        op("Concat", "past x -> present", axis=1),
        op("Cast", "mask -> seen", to=1),
        op("Unsqueeze", "seen last -> column"),
        op("Mul", "present column -> shown"),
        op("ReduceMax", "shown -> y", axes=[1], keepdims=0),
        inputs=[
            tensor("x", F32, "batch", "rows", 3),
            tensor("past", F32, "batch", "past", 3),
            tensor("mask", np.int64, "batch", "total"),
        ],
        outputs=[Y, tensor("present", F32, "batch", "total", 3)],
        constants={"last": np.array([2])},
    )


SCHEDULERS = ["oldest", "direct", "free"]

MODELS = {
    "own_start": Folder(config([X_ROWS], [Y_ROWS], START), apart_by_control),
    "pooled": Folder(config([io("x", "FP32", -1, 3)], [Y_ROWS], oldest(4), derived_inputs="mask = mask(past, x:1)"), pooled),
}


def test_a_control_of_ones_own_is_served(own_client):
    steps = [[{"x": np.full((1, 3), number, F32)} for _ in range(3)] for number in range(4)]
    for answers, number in zip(play(own_client, "own_start", steps), range(4), strict=True):
        assert [step["y"][0, 0] for step in answers] == [number, 2 * number, 3 * number]


def test_padding_that_only_low_numbers_would_show(own_server, own_client):
    """The answers are below 0, and stay so next to a longer sequence."""
    lengths = [1, 2, 3, 5]
    random = np.random.default_rng(1)
    sequences = [[{"x": -1 - random.random((1, rows, 3), F32)} for rows in (each, 1, 1)] for each in lengths]

    reference = Reference(pooled(), {"past": "present"}, given=mask())
    with ThreadPoolExecutor(len(sequences)) as pool:
        for step in range(3):
            sent = [pool.submit(infer, own_client, "pooled", 10 + at, each[step], start=step == 0)
                    for at, each in enumerate(sequences)]  # fmt: skip
            for each, answer in zip(sequences, sent, strict=True):
                want = reference.answers(each)[step]["y"]
                np.testing.assert_array_equal(answer.result()["y"], want)
    separately = rf"sequences of unequal length run separately[^\n]*model={own_client.served('pooled')}\b"
    assert re.search(separately, own_server.log_text())
