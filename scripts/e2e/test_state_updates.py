"""States that their output does not simply replace, and inputs that follow from what the model wrote."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest
from conftest import Folder
from gallery_text import merged_decoder
from graphs import model, op, tensor
from report import load_report
from sequences import Reference, Tensors, check, play
from tritonserver import ServerError
from unary import infer

F32 = np.float32


def running_sum() -> ModelProto:
    """Answers with the sum of all numbers so far, and writes only the newest."""
    return model(
        op("Concat", "past x -> all", axis=1),
        op("ReduceSum", "all one -> y", keepdims=1),
        op("Identity", "x -> new"),
        inputs=[tensor("x", F32, "batch", 1), tensor("past", F32, "batch", "past")],
        outputs=[tensor("y", F32, "batch", 1), tensor("new", F32, "batch", 1)],
        constants={"one": np.array([1])},
    )


def deltas() -> ModelProto:
    """Writes the new part of caches whose batch and length stand in every order, and answers with what differs for
    each of their rows."""
    return model(
        op("Unsqueeze", "x one -> present_0"),  # [batch, 1, rows, 3], the length inside
        op("Transpose", "x -> present_1", perm=[1, 0, 2]),  # [rows, batch, 3], the batch inside
        op("Transpose", "x -> present_2", perm=[2, 1, 0]),  # [3, rows, batch], both
        *(op("Concat", f"past_{n} present_{n} -> all_{n}", axis=axis) for n, axis in enumerate([2, 0, 1])),
        op("Squeeze", "all_0 one -> rows_0"),
        op("Transpose", "all_1 -> rows_1", perm=[1, 0, 2]),
        op("Transpose", "all_2 -> rows_2", perm=[2, 1, 0]),
        op("Concat", "rows_0 rows_1 rows_2 -> y", axis=2),
        inputs=[
            tensor("x", F32, "batch", "rows", 3),
            tensor("past_0", F32, "batch", 1, "past", 3),
            tensor("past_1", F32, "past", "batch", 3),
            tensor("past_2", F32, 3, "past", "batch"),
        ],
        outputs=[
            tensor("y", F32, "batch", "total", 9),
            tensor("present_0", F32, "batch", 1, "rows", 3),
            tensor("present_1", F32, "rows", "batch", 3),
            tensor("present_2", F32, 3, "rows", "batch"),
        ],
        constants={"one": np.array([1])},
    )


def delta() -> ModelProto:
    """Two caches [batch, past, 3], of which the model writes the new part."""
    return model(
        op("Concat", "past_0 x -> all_0", axis=1),
        op("Concat", "past_1 x -> all_1", axis=1),
        op("Add", "all_0 all_1 -> both"),
        op("ReduceSum", "both one -> y", keepdims=0),
        op("Identity", "x -> present_0"),
        op("Identity", "x -> present_1"),
        inputs=[
            tensor("x", F32, "batch", "rows", 3),
            *(tensor(f"past_{n}", F32, "batch", "past", 3) for n in range(2)),
        ],
        outputs=[
            tensor("y", F32, "batch", 3),
            *(tensor(f"present_{n}", F32, "batch", "rows", 3) for n in range(2)),
        ],
        constants={"one": np.array([1])},
    )


def wenet() -> ModelProto:
    """Writes one row for every two that it is sent, answers with its offset, and keeps a state so that it has sequences."""
    return model(
        op("Slice", "x from to axis step -> half"),
        op("Cast", "offset -> shift", to=1),
        op("Add", "half shift -> y"),
        op("Identity", "s -> s_out"),
        inputs=[
            tensor("x", F32, "batch", "rows", 3),
            tensor("s", F32, "batch", 1),
            tensor("offset", np.int64),
        ],
        outputs=[tensor("y", F32, "batch", "frames", 3), tensor("s_out", F32, "batch", 1)],
        constants={"from": np.array([0]), "to": np.array([1 << 40]), "axis": np.array([1]), "step": np.array([2])},
    )


ROWS = io("x", "FP32", -1, 3)
NUMBER, SUM = io("x", "FP32", 1), io("y", "FP32", 1)
APPENDED = {"state_pairs": "<<<past, new>>>", "state_updates": "past = append(1)"}
LIMIT = 3 * 3 * 4  # bytes of three rows
BRANCH = '{ name: "use_cache_branch" control [{ kind: CONTROL_SEQUENCE_START bool_false_true: [ true, false ] }] }'
THREE_LINES = 'backend: "stateful"\nsequence_batching { oldest { max_candidate_sequences: 64 } }\n'
DECODER = [io("input_ids", "INT64", -1), io("encoder_hidden_states", "FP32", -1, 8)]

SCHEDULERS = ["oldest", "direct", "free"]

MODELS = {
    "running_sum": Folder(config([NUMBER], [SUM], **APPENDED), running_sum()),
    "limited": Folder(
        config([ROWS], [io("y", "FP32", 3)], max_state_bytes=str(LIMIT), state_updates="past_* = append(1)"), delta()
    ),
    "shown": Folder(config([NUMBER], [SUM, io("new", "FP32", 1)], **APPENDED), running_sum()),
    "deltas": Folder(
        config(
            [ROWS],
            [io("y", "FP32", -1, 9)],
            state_updates="past_0 = append(2); past_1 = append(0); past_2 = append(1)",
            initial_states="past_0 = 0.5[1,2,3]; past_1 = 1.5[2,3]; past_2 = 2.5[3,2]",
        ),
        deltas(),
    ),
    "merged": Folder(
        config(
            DECODER,
            [io("logits", "FP32", -1, 8)],
            oldest(more=f"control_input [{BRANCH}]"),
            state_pairs="<<<past_key_values.*, present.*>>>",
            state_updates="past_key_values.*.encoder.* = keep",
        ),
        merged_decoder(),
    ),
    "merged_by_axes": Folder(
        THREE_LINES + 'parameters { key: "batch_axes" value { string_value: "* = 0; use_cache_branch = none" } }',
        merged_decoder(),
    ),
    "wenet": Folder(
        config([ROWS], [io("y", "FP32", -1, 3)], derived_inputs="offset = 16 + length_before(y)"),
        wenet(),
    ),
}


def numbers(*values: float) -> list[Tensors]:
    return [{"x": np.array([[value]], F32)} for value in values]


def appending(axis: int):
    return lambda old, new: np.concatenate([old, new], axis)


def test_append_against_the_reference(own_client):
    reference = Reference(running_sum(), {"past": "new"}, updates={"past": appending(1)})
    check(own_client, "running_sum", reference, [numbers(*range(first, first + 9)) for first in (1, 20, 300)])


def test_append_along_every_axis(own_client):
    """Sequences of one and of different lengths, which meet in batches of Triton's."""
    states = {f"past_{n}": f"present_{n}" for n in range(3)}
    shapes = [(1, 1, 2, 3), (2, 1, 3), (3, 2, 1)]
    initial = {f"past_{n}": np.full(shape, n + 0.5, F32) for n, shape in enumerate(shapes)}
    updates = {f"past_{n}": appending(axis) for n, axis in enumerate([2, 0, 1])}
    reference = Reference(deltas(), states, initial, updates=updates)
    random = np.random.default_rng(5)
    sequences = [
        [{"x": random.integers(0, 1000, (1, count, 3)).astype(F32)} for count in counts]
        for counts in ([1, 1, 1, 2], [1, 1, 1, 2, 1], [2, 1, 1], [3, 1, 2])
    ]
    check(own_client, "deltas", reference, sequences)


def test_state_in_the_answer_is_what_the_model_wrote(own_client):
    ((first, second),) = play(own_client, "shown", [numbers(4, 5)])
    assert [first["new"].tolist(), second["new"].tolist(), second["y"].tolist()] == [[[4]], [[5]], [[9]]]


def test_limit_of_the_joined_state(own_client):
    """The request beyond the limit is refused; the state stays as it was."""

    def rows(count: int) -> Tensors:
        return {"x": np.full((1, count, 3), count, F32)}

    infer(own_client, "limited", 7, rows(2), start=True)
    for _ in range(2):
        with pytest.raises(InferenceServerException, match=r"would grow to 48 bytes .* at most 36 "):
            infer(own_client, "limited", 7, rows(2))
    assert infer(own_client, "limited", 7, rows(1), end=True)["y"].tolist() == [[10, 10, 10]]


def tokens(random: np.random.Generator, *, start: bool, length: int = 1) -> Tensors:
    """A request of the decoder. What the encoder says counts at the start; then its cache does."""
    hidden = random.integers(0, 100, (1, 5, 8)).astype(F32) if start else np.full((1, 5, 8), np.nan, F32)
    return {"input_ids": random.integers(1, 9, (1, length)), "encoder_hidden_states": hidden}


def decoder_reference() -> Reference:
    return Reference(
        merged_decoder(),
        {f"past_key_values.0.{part}.key": f"present.0.{part}.key" for part in ("decoder", "encoder")},
        {f"past_key_values.0.{part}.key": np.zeros((1, 2, 0, 4), F32) for part in ("decoder", "encoder")},
        given=lambda steps: {"use_cache_branch": np.array([len(steps) > 1])},
        updates={"past_key_values.0.encoder.key": lambda old, new: new if new.size else old},
    )


def test_merged_decoder(own_client):
    random = np.random.default_rng(6)
    sequences = [[tokens(random, start=step == 0) for step in range(steps)] for steps in (5, 4, 5)]
    check(own_client, "merged", decoder_reference(), sequences, tolerance=1e-4)


def test_starts_and_others_in_one_batch(own_client):
    """The flag is one for a whole run, so a batch with both kinds is more than one run."""
    random = np.random.default_rng(7)
    sequences = [[tokens(random, start=step == 0) for step in range(3)] for _ in range(4)]
    want = [decoder_reference().answers(steps) for steps in sequences]
    ids = [61, 62, 63, 64]
    with ThreadPoolExecutor(len(ids)) as pool:
        for moment in range(5):  # two sequences begin later than the others
            sent = {
                at: pool.submit(infer, own_client, "merged", ids[at], sequences[at][step], start=step == 0, end=step == 2)
                for at in range(len(ids))
                if 0 <= (step := moment - at // 2) < 3
            }
            for at, answer in sent.items():
                np.testing.assert_allclose(answer.result()["logits"], want[at][moment - at // 2]["logits"], rtol=1e-4)


def test_merged_decoder_of_which_nothing_was_said(serve):
    """The lines that serve it are in the load's error, or where runs of the model do not show what is missing, in the
    log."""
    plain = serve({"merged_by_names": Folder(THREE_LINES, merged_decoder())}, explicit=True)
    with contextlib.suppress(ServerError):
        plain.load("merged_by_names")
    said = next(line for line in plain.log_text().splitlines() if "a merged decoder writes the caches" in line)
    advice = said[said.index("a merged decoder writes the caches") :]
    parameter, control = re.findall(r"(?:parameters|control_input) .*?\} ?[\]}](?=,| model=|\"|$)", advice)
    pasted = serve({"pasted": Folder(THREE_LINES.replace("oldest", f"{control} oldest") + parameter, merged_decoder())})
    with InferenceServerClient(pasted.grpc_url) as client:
        assert client.is_model_ready("pasted")
        sequences = [[tokens(np.random.default_rng(9), start=step == 0) for step in range(3)] for _ in range(2)]
        check(client, "pasted", decoder_reference(), sequences, tolerance=1e-4, batched=False)
    assert "merged decoder" not in pasted.log_text()


def test_merged_decoder_whose_batch_was_said(own_server, own_client):
    """It loads, and its second request fails. The log says so when it is loaded."""

    def request(step: int) -> Tensors:
        return tokens(np.random.default_rng(8), start=True) | {"use_cache_branch": np.array([[step > 0]])}

    assert own_client.is_model_ready("merged_by_axes")
    model = rf"model={own_client.served('merged_by_axes')}\b"
    lines = [line for line in own_server.log_text().splitlines() if "a merged decoder writes the caches" in line]
    (line,) = [line for line in lines if re.search(model, line)]
    assert "second request of a sequence" in line
    infer(own_client, "merged_by_axes", 77, request(0), start=True)
    with pytest.raises(InferenceServerException, match=r'string_value: "past_key_values.0.encoder.key = keep"'):
        infer(own_client, "merged_by_axes", 77, request(1))


def test_offset_that_begins_with_the_cache_and_follows_the_output(own_client):
    """WeNet's offset: 16, and what earlier requests were answered with. Sequences of unequal offset share no run."""

    def offset(steps: list[Tensors]) -> Tensors:
        return {"offset": np.array(16 + sum((each["x"].shape[1] + 1) // 2 for each in steps[:-1]))}

    sequences = [
        [{"x": np.full((1, count, 3), first, F32)} for count in counts]
        for first, counts in ((0.5, [4, 4, 1, 4]), (2, [4, 4, 1, 4]), (3, [3, 4, 1, 4, 2]))
    ]
    check(own_client, "wenet", Reference(wenet(), {"s": "s_out"}, given=offset), sequences)


def test_load_report_names_the_rules(own_server, own_client):
    assert own_client.is_model_ready("merged")
    assert "append(1) from state_updates" in load_report(own_server, own_client.served("running_sum"))
    report = load_report(own_server, own_client.served("merged"))
    assert report.count("keep from state_updates") == 1
    assert "one at a time" not in report
