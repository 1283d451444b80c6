"""Where states are kept: slots and chunks of them, float32 kept in half the memory, and batches that are padded."""

import re

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from nvidia import BOOL_INT8, FP32, INT32, MIXED, PLAIN, ModelConfig, fours, lines, slots, together, variant
from unary import infer

RUN = {**PLAIN, "infer_end_requests": "1"}
SAMPLE = {
    "initial_buffer_size": "512",
    "subsequent_buffer_size": "100",
    "buffer_alloc_threshold": "32",
    "buffer_dealloc_threshold": "200",
}

# candidates, max_batch_size, other parameters, and the report's line of slots: now, at most, as the C++ backend's.
SIZES = {
    "sample": (1280, 16, SAMPLE, "512 now, at most 1112 in chunks of 100;.* is 1152"),
    "at_once": (1280, 16, {}, "1152 now, at most 1152;"),
    "ratio_all": (1280, 16, {"max_candidate_sequence_use_ratio": "1"}, "1280 now, at most 1280;"),
    "ratio_above_one": (1280, 16, {"max_candidate_sequence_use_ratio": "1.2"}, "1280 now, at most 1536 in chunks of 16;"),
    "initial_too_large": (100, 16, {**SAMPLE, "buffer_alloc_threshold": "20"}, "90 now, at most 90;"),
    "ratio_third": (999, 4, {"max_candidate_sequence_use_ratio": "0.3"}, "299 now, at most 299;"),
}

# For 1, 3 and 4 requests in a batch, how many lanes the model runs with. 4 is preferred, 8 the largest.
NONE, PREFERRED, MAX = [1, 3, 4], [4, 4, 4], [8, 8, 8]
PADDINGS = {
    "pad_default": ({}, NONE),
    "pad_flag_off": ({"always_pad_to_max_batch": "0"}, NONE),
    "pad_flag_on": ({"always_pad_to_max_batch": "1"}, PREFERRED),  # as the C++ backend does, whatever its name says
    "pad_auto": ({"batch_padding": "auto"}, NONE),  # the states are small
    "pad_none": ({"batch_padding": "none"}, NONE),
    "pad_preferred": ({"batch_padding": "preferred"}, PREFERRED),
    "pad_max": ({"batch_padding": "max"}, MAX),
    "pad_none_wins": ({"always_pad_to_max_batch": "1", "batch_padding": "none"}, NONE),
}


def preferred(config: ModelConfig) -> None:
    slots(8, 64)(config)
    config.sequence_batching.oldest.preferred_batch_size[:] = [4]


def lane_counter() -> ModelProto:
    """Answers with the number of lanes that the model is run with, padding included."""
    return model(
        op("Shape", "x -> shape", end=1),
        op("Cast", "shape -> lanes", to=1),
        op("Mul", "x zero -> nothing"),
        op("Add", "nothing lanes -> y"),
        op("Add", "s x -> s_out"),
        inputs=[tensor("x", np.float32, "batch", 1), tensor("s", np.float32, "batch", 1)],
        outputs=[tensor("y", np.float32, "batch", 1), tensor("s_out", np.float32, "batch", 1)],
        constants={"zero": np.float32(0)},
    )


def counter(parameters: dict[str, str]) -> Folder:
    """Batches of what comes within 0.1 s, if it is less than 4 requests."""
    scheduler = oldest(batch=4, delay=100_000)
    told = {"batch_axes": "* = 0"}  # lanes that are counted look like lanes that see each other
    return Folder(config([io("x", "FP32", 1)], [io("y", "FP32", 1)], scheduler, **told, **parameters), lane_counter)


LAZY = {
    "initial_buffer_size": "8",
    "subsequent_buffer_size": "4",
    "buffer_alloc_threshold": "4",
    "buffer_dealloc_threshold": "8",
    "max_candidate_sequence_use_ratio": "1",
}

MODELS = {
    **{
        name: variant(FP32, slots(batch, candidates), **{**RUN, **parameters})
        for name, (candidates, batch, parameters, _) in SIZES.items()
    },
    **{name: variant(FP32, preferred, **RUN, **parameters) for name, (parameters, _) in PADDINGS.items()},
    **{f"lanes_{name}": counter(parameters) for name, (parameters, _) in PADDINGS.items()},
    "lazy": variant(FP32, slots(4, 20), **{**RUN, **LAZY}),
    "two_instances": variant(FP32, lambda config: setattr(config.instance_group[0], "count", 2), **{**RUN, **SAMPLE}),
    "full": variant(FP32, **RUN),
    "half": variant(FP32, **RUN, store_states_as_fp16="1"),
    "half_int32": variant(INT32, **RUN, store_states_as_fp16="1"),
    "half_mixed": variant(MIXED, **RUN, store_states_as_fp16="1"),
    "half_bool_int8": variant(BOOL_INT8, **RUN, store_states_as_fp16="1"),
    "half_lazy": variant(FP32, slots(4, 20), **{**RUN, **LAZY}, store_states_as_fp16="1"),
}


@pytest.mark.parametrize("name", SIZES)
def test_slots(own_server, name):
    (line,) = lines(own_server, f"{name}_0_0: slots:")
    assert re.search(SIZES[name][3], line)


def test_instances_have_equal_slots(own_server):
    """The C++ backend once multiplied by the ratio again for every instance."""
    for instance in ("two_instances_0_0", "two_instances_0_1"):
        (line,) = lines(own_server, f"{instance}: slots: 512 now, at most 1112")
        assert "is 1152" in line


def chunks(server, client, name: str) -> list[str]:
    """What has become of chunks: "+" and "-" with the number of slots then.

    Chunks come and go after the answers, but before the next request of the instance, which is sent for that.
    """
    fours(client, name, 99, 0)
    found = lines(server, f"model={name} ", "a chunk of slots")
    return [("+" if "allocated" in line else "-") + re.search(r"slots=(\d+)", line)[1] for line in found]


@pytest.mark.parametrize("name", ["lazy", "half_lazy"])
def test_chunks_come_and_go(own_server, own_client, name):
    """A chunk comes when fewer than 4 slots are free, not at 4; the last goes when more than 8 are free, not at 8.

    Sequences keep their sums while chunks come and go.
    """
    expected: list[str] = []
    fours(own_client, name, 99, start=True)
    for i in range(1, 20):
        assert fours(own_client, name, i, i, start=True) == 4 * i
        if i in (4, 8, 12):  # with 99, of 8, 12 and 16 slots 3 are free
            expected.append(f"+{i + 8}")
        assert chunks(own_server, own_client, name) == expected
    total = 20
    for i in range(19, 0, -1):  # the last slots get free first
        assert fours(own_client, name, i, i, end=True) == 8 * i
        if total - i == 9 and total > 8:
            total -= 4
            expected.append(f"-{total}")
        assert chunks(own_server, own_client, name) == expected
    assert expected == ["+12", "+16", "+20", "-16", "-12", "-8"]
    assert fours(own_client, name, 99, 0, end=True) == 4


def test_half_storage_takes_half_the_memory(own_server):
    for name, size in {"full": 20, "half": 10, "half_lazy": 10, "half_int32": 20, "half_mixed": 42, "half_bool_int8": 12}.items():
        (line,) = lines(own_server, f"{name}_0_0: states:")
        assert f"states: {size} bytes for each sequence" in line
    (line,) = lines(own_server, "half_lazy_0_0: states:")
    assert "80 bytes now, at most 200;" in line  # 8 slots of 10 bytes, then 20: the chunks are halved too


def test_half_storage_rounds(own_client):
    """What is answered is computed in float32; only what is kept is rounded, to the nearest and to even."""

    def step(value: float, **flags) -> float:
        rows = np.zeros((1, 4, 1, 5), np.float32)
        rows[0, 0] = value
        return infer(own_client, "half", 1, {"Input": rows}, **flags)["Output"][1, 0, 0]

    assert step(2049, start=True) == 2049
    assert step(0) == 2048  # halfway between 2048 and 2050
    assert step(3) == 2051
    assert step(0) == 2052  # halfway between 2050 and 2052
    assert step(0.1) == np.float32(2052) + np.float32(0.1)
    assert step(0) == 2052
    third = np.float32(1 / 3)
    assert step(third, start=True) == third
    assert step(0, end=True) == np.float32(np.float16(third))


def test_half_storage_counts_what_does_not_fit(own_server, own_client):
    """The largest float16 is kept in its place, and a warning says so once."""
    assert lines(own_server, "model=half ", "clamped") == []
    assert fours(own_client, "half", 2, 20_000, start=True) == 80_000
    assert fours(own_client, "half", 2, 0) == 65_504
    assert fours(own_client, "half", 2, 20_000) == 145_504
    assert fours(own_client, "half", 2, 0, end=True) == 65_504
    (line,) = lines(own_server, "model=half ", "clamped")
    assert "store_states_as_fp16" in line and "elements=5" in line


@pytest.mark.parametrize("name", ["half_int32", "half_mixed"])
def test_half_storage_leaves_other_types_alone(own_server, own_client, name):
    (line,) = lines(own_server, f"model={name} ", "without effect")
    assert "store_states_as_fp16" in line
    if name == "half_int32":
        assert fours(own_client, name, 3, 2**20 + 1, dtype=np.int32, start=True) == 2**22 + 4
        assert fours(own_client, name, 3, 1, dtype=np.int32, end=True) == 2**22 + 8


@pytest.mark.parametrize("name", PADDINGS)
def test_padding_is_what_was_asked_for(own_client, name):
    def ask(sequence: int, **flags) -> float:
        value = {"x": np.ones((1, 1), np.float32)}
        return infer(own_client, f"lanes_{name}", sequence, value, **flags)["y"].item()

    def lanes(requests: int) -> list[float]:
        ids = range(1, requests + 1)
        starts = together(*(lambda i=i: ask(i, start=True) for i in ids))
        return starts + together(*(lambda i=i: ask(i, end=True) for i in ids))

    for requests, ran in zip([1, 3, 4], PADDINGS[name][1]):
        attempts = (lanes(requests) for _ in range(5))  # on a busy machine they may not meet in one batch
        assert any(attempt == [ran] * 2 * requests for attempt in attempts)
