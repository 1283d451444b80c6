"""The schedulers of Triton, with states and without, and the controls that they can give to a model."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, direct, free, io, oldest, under
from conftest import Folder
from graphs import model, op, running_sum, tensor
from report import load_report
from sequences import Reference, Tensors, check, largest_batches, play
from unary import infer

F32 = np.float32
STATES = {"s": "s_out"}
X, Y = io("x", "FP32", 3), io("y", "FP32", 3)
SLOTS = 4


def stateless(axis: int = 0) -> ModelProto:
    """y = 2x, with the batch on an axis of two others; and strings as they came."""
    shape = [2, 3]
    shape.insert(axis, "batch")
    return model(
        op("Add", "x x -> y"),
        op("Identity", "word -> echo"),
        inputs=[tensor("x", F32, *shape), tensor("word", bytes, "batch", 1)],
        outputs=[tensor("y", F32, *shape), tensor("echo", bytes, "batch", 1)],
    )


def doubles() -> ModelProto:
    """y = 2x, without a batch."""
    return model(op("Add", "x x -> y"), inputs=[tensor("x", F32, 2, 3)], outputs=[tensor("y", F32, 2, 3)])


def twice_as_long() -> ModelProto:
    """A stateless model whose answer's length follows from what it is sent."""
    return model(
        op("Concat", "x x -> y", axis=1),
        inputs=[tensor("x", F32, "batch", "width")],
        outputs=[tensor("y", F32, "batch", "twice")],
    )


PAIR = ([io("x", "FP32", 2, 3), io("word", "STRING", 1)], [io("y", "FP32", 2, 3), io("echo", "STRING", 1)])
DYNAMIC = "dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 50000 }"
TWO_INSTANCES = "instance_group [{ count: 2 kind: KIND_CPU }]"

# Controls by name: the model's type of START, END and READY, how the configuration says it, and its false and true.
FLAGS = {
    "int32": (np.int32, "int32_false_true: [0, 1]", (0, 1)),
    "other_int32": (np.int32, "int32_false_true: [-5, 7]", (-5, 7)),
    "fp32": (F32, "fp32_false_true: [0.5, 2]", (0.5, 2)),
    "bool": (bool, "bool_false_true: [false, true]", (False, True)),
    "bool_turned": (bool, "bool_false_true: [true, false]", (True, False)),
    "bool_from_int32": (bool, "int32_false_true: [0, 1]", (False, True)),
}
IN_ONE = ", ".join(
    f"{{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [0, {true}] }}" for kind, true in (("END", 1), ("START", 2))
)
IDS = {"UINT64": np.uint64, "INT64": np.int64, "UINT32": np.uint32, "INT32": np.int32, "STRING": bytes}


def with_inputs(extra: dict[str, tuple]) -> ModelProto:
    """A running sum that also answers with further inputs, given by name, as they are."""
    given = {name: (dtype, ["batch", *dims]) for name, (dtype, dims) in extra.items()}
    return model(
        op("Add", "s x -> s_out"),
        op("Identity", "s_out -> y"),
        *(op("Identity", f"{name} -> {name}_y") for name in given),
        inputs=[
            tensor("x", F32, "batch", 3),
            tensor("s", F32, "batch", 3),
            *(tensor(name, dtype, *dims) for name, (dtype, dims) in given.items()),
        ],
        outputs=[
            tensor("y", F32, "batch", 3),
            tensor("s_out", F32, "batch", 3),
            *(tensor(f"{name}_y", dtype, *dims) for name, (dtype, dims) in given.items()),
        ],
    )


DATATYPES = {np.int32: "INT32", F32: "FP32", bool: "BOOL"}


def flags(name: str) -> Folder:
    """START has only the batch axis, the others have one of extent 1."""
    dtype, values, _ = FLAGS[name]
    controls = ", ".join(
        f'{{ name: "{control}" control [{{ kind: CONTROL_SEQUENCE_{control} {values} }}] }}'
        for control in ("START", "END", "READY")
    )
    outputs = [Y, io("START_y", DATATYPES[dtype]), io("END_y", DATATYPES[dtype], 1), io("READY_y", DATATYPES[dtype], 1)]
    return Folder(
        config([X], outputs, oldest(3, f"control_input [{controls}]")),
        with_inputs({"START": (dtype, []), "END": (dtype, [1]), "READY": (dtype, [1])}),
    )


def correlation(datatype: str, scheduler=oldest) -> Folder:
    control = f'control_input [{{ name: "ID" control [{{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{datatype} }}] }}]'
    return Folder(
        config([X], [Y, io("ID_y", datatype, 1)], scheduler(more=control), batch=SLOTS),
        with_inputs({"ID": (IDS[datatype], [1])}),
    )


MODELS = {
    "oldest": Folder(config([X], [Y]), running_sum("batch", 3)),
    "oldest_of_two": Folder(config([X], [Y], group=TWO_INSTANCES), running_sum("batch", 3)),
    "free": Folder(config([X], [Y], free()), running_sum("batch", 3)),
    "free_of_two": Folder(config([X], [Y], free(), group=TWO_INSTANCES), running_sum("batch", 3)),
    "direct": Folder(config([X], [Y], direct(), batch=SLOTS), running_sum("batch", 3)),
    "direct_at_once": Folder(config([X], [Y], direct(delay=0, utilization=0), batch=SLOTS), running_sum("batch", 3)),
    "direct_of_two": Folder(config([X], [Y], direct(), batch=SLOTS, group=TWO_INSTANCES), running_sum("batch", 3)),
    "default": Folder(config(*PAIR, ""), stateless()),
    "dynamic": Folder(config(*PAIR, DYNAMIC), stateless()),
    "dynamic_inner": Folder(config(*PAIR, DYNAMIC), stateless(1)),
    "dynamic_of_two": Folder(config(*PAIR, DYNAMIC, group=TWO_INSTANCES), stateless()),
    "dynamic_width": Folder(config([io("x", "FP32", -1)], [io("y", "FP32", -1)], DYNAMIC), twice_as_long()),
    "without_batch": Folder(config([io("x", "FP32", 2, 3)], [io("y", "FP32", 2, 3)], "", batch=0), doubles()),
    **{f"flags_{name}": flags(name) for name in FLAGS},
    "flags_in_one": Folder(
        config([X], [Y, io("FLAG_y", "INT32", 1)], oldest(3, f'control_input [{{ name: "FLAG" control [{IN_ONE}] }}]')),
        with_inputs({"FLAG": (np.int32, [1])}),
    ),
    **{f"id_{datatype}": correlation(datatype) for datatype in IDS},
    **{f"direct_id_{datatype}": correlation(datatype, direct) for datatype in ("UINT64", "STRING")},
}
# What control_input says, derived inputs say of free sequences: they have one value for true and one for false.
MODELS |= {f"free_{name}": replace(MODELS[name], config=under(MODELS[name].config, "free")) for name in ("id_UINT64", "id_INT32")}


def whole_numbers(sequences: int, steps: int) -> list[list[Tensors]]:
    random = np.random.default_rng(0)
    return [[{"x": random.integers(-9, 10, (1, 3)).astype(F32)} for _ in range(steps)] for _ in range(sequences)]


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        ("oldest", 3),
        ("oldest", 20),
        ("free", 3),
        ("free", 20),
        ("free_of_two", 8),
        ("direct", SLOTS),
        ("direct_at_once", SLOTS),
        ("oldest_of_two", 8),
        ("direct_of_two", 2 * SLOTS),
    ],
)
def test_sequences(own_client, name, sequences):
    reference = Reference(running_sum("batch", 3), STATES)
    batched = name != "direct_at_once"
    check(own_client, name, reference, whole_numbers(sequences, 5), batched=batched)


@pytest.mark.parametrize("name", ["direct", "direct_at_once", "oldest", "free", "free_of_two"])
def test_sequences_that_pause(own_client, name):
    """Some sequences send and others do not. To the direct scheduler's batches the idle ones are empty rows, which must
    not take a slot or change a state: there are as many slots as sequences."""
    random = np.random.default_rng(1)
    sums: dict[int, np.ndarray] = {}  # of the open sequences
    following = iter(range(100, 1000))
    with ThreadPoolExecutor(SLOTS) as pool:
        for turn in range(40):
            sums |= {next(following): np.zeros(3, F32) for _ in range(SLOTS - len(sums))}
            chosen = [sequence for sequence in sums if random.random() < 0.5]
            sent = []
            for sequence in chosen:
                x = random.integers(-9, 10, (1, 3)).astype(F32)
                start, end = not sums[sequence].any(), turn == 39 or random.random() < 0.2
                x[0, 0] = 1000 + turn  # so that no sum is zero
                sums[sequence] = sums[sequence] + x[0]
                sent.append((sequence, end, pool.submit(infer, own_client, name, sequence, {"x": x}, start=start, end=end)))
            for sequence, end, answer in sent:
                np.testing.assert_array_equal(answer.result()["y"], [sums[sequence]])
                if end:
                    del sums[sequence]
    for sequence, total in sums.items():
        if total.any():
            infer(own_client, name, sequence, {"x": np.zeros((1, 3), F32)}, end=True)


def test_more_sequences_than_slots(own_client):
    """The direct scheduler lets them wait until another one ends."""
    answers = []
    with ThreadPoolExecutor(3 * SLOTS) as pool:
        for at in range(3 * SLOTS):
            answers.append(pool.submit(play, own_client, "direct", [whole_numbers(at + 1, 3)[at]]))
        for at, answer in enumerate(answers):
            steps = whole_numbers(at + 1, 3)[at]
            want = np.cumsum([step["x"] for step in steps], axis=0)
            np.testing.assert_array_equal([each["y"] for each in answer.result()[0]], want)


def test_each_instance_has_sequences(own_server):
    for name in ("oldest_of_two", "direct_of_two", "dynamic_of_two"):
        assert "ready on CPU" in load_report(own_server, name)
        assert f"{name}_0_1: ready on CPU" in own_server.log_text()


def rows(count: int, first: int = 0) -> Tensors:
    """A request with that number of rows."""
    words = [[f"{first}:{row}".encode() * (row % 3)] for row in range(count)]
    return {
        "x": first + np.arange(count * 6, dtype=F32).reshape(count, 2, 3),
        "word": np.array(words, object),
    }


def answer_of(request: Tensors) -> Tensors:
    return {"y": 2 * request["x"], "echo": request["word"]}


def equal(got: Tensors, want: Tensors) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, strict=True)


@pytest.mark.parametrize("name", ["default", "dynamic", "dynamic_inner", "dynamic_of_two"])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_rows_of_one_request(own_client, name, count):
    """Without sequences a request may have several rows."""
    request = rows(count)
    equal(infer(own_client, name, 0, request), answer_of(request))


@pytest.mark.parametrize("name", ["dynamic", "dynamic_inner", "dynamic_of_two"])
def test_dynamic_batching(own_client, name):
    """Requests of different numbers of rows run together, and each gets its own rows back."""
    before = largest_batches(own_client, name)
    requests = [rows(1 + at % 3, first=100 * at) for at in range(24)]
    with ThreadPoolExecutor(8) as pool:
        for request, answer in zip(requests, pool.map(lambda each: infer(own_client, name, 0, each), requests), strict=True):
            equal(answer, answer_of(request))
    after = largest_batches(own_client, name)
    assert any(size > 3 and count > before.get(size, 0) for size, count in after.items()), after


def test_dynamic_batching_of_unequal_shapes(own_client):
    requests = [{"x": np.full((1 + at % 2, 1 + at % 3), at, F32)} for at in range(12)]
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda each: infer(own_client, "dynamic_width", 0, each), requests)
        for request, answer in zip(requests, answers, strict=True):
            equal(answer, {"y": np.concatenate([request["x"]] * 2, axis=1)})


def test_without_batch(own_client):
    request = {"x": np.arange(6, dtype=F32).reshape(2, 3)}
    equal(infer(own_client, "without_batch", 0, request), {"y": 2 * request["x"]})


@pytest.mark.parametrize("name", FLAGS)
def test_flags(own_client, name):
    """Every control has, in each request of each sequence, the value that the configuration gives for false or true."""
    dtype, _, values = FLAGS[name]
    sequences = whole_numbers(3, 3)
    for answered in play(own_client, f"flags_{name}", sequences):
        for step, answer in enumerate(answered):
            for control, on in (("START", step == 0), ("END", step == 2), ("READY", True)):
                np.testing.assert_array_equal(answer[f"{control}_y"], np.array([[values[on]]], dtype), strict=True)


def test_flags_in_one_tensor(own_server, own_client):
    """The last of START, END, READY and CORRID is what Triton leaves in a tensor of several; a warning says so."""
    for answered in play(own_client, "flags_in_one", whole_numbers(3, 3)):
        assert [answer["FLAG_y"].item() for answer in answered] == [0, 0, 1]
    warning = "its value is that of CONTROL_SEQUENCE_END"
    assert warning in own_server.log_text()


def id_of(datatype: str, at: int) -> int | str:
    if datatype == "STRING":
        return ["a", "a longer text", "Käse → 語"][at]
    return [1, 2**31 - 1, 2**63 - 1 if "64" in datatype else 77][at]


@pytest.mark.parametrize("name", [name for name in MODELS if "id_" in name])
def test_correlation_id(own_client, name):
    datatype = name.rpartition("_")[2]
    sequences = whole_numbers(3, 3)
    ids = [id_of(datatype, at) for at in range(3)]
    want = Reference(running_sum("batch", 3), STATES)
    for sequence, steps, answered in zip(ids, sequences, play(own_client, name, sequences, ids=ids), strict=True):
        for got, expected in zip(answered, want.answers(steps), strict=True):
            np.testing.assert_array_equal(got["y"], expected["y"])
            wanted = [[sequence.encode()]] if datatype == "STRING" else [[sequence]]
            dtype = object if datatype == "STRING" else IDS[datatype]
            np.testing.assert_array_equal(got["ID_y"], np.array(wanted, dtype), strict=True)


def test_without_the_control_ids_are_numbers_or_texts(own_client):
    """The server survives any text then; a control of a numeric type would let it write past the number's end."""
    for sequence in (41, "41", "語" * 40):
        for step in range(2):
            answer = infer(own_client, "oldest", sequence, {"x": np.ones((1, 3), F32)}, start=step == 0, end=step == 1)
            np.testing.assert_array_equal(answer["y"], np.full((1, 3), step + 1, F32))


def test_numeric_ids_are_warned_of(own_server):
    log = own_server.log_text().replace('\\"', '"')
    assert 'control "ID" has data_type TYPE_UINT64: tritonserver before 25.01 may crash' in log
    assert 'control "ID" has data_type TYPE_STRING' not in log
