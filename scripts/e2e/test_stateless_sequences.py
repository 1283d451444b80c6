"""Schedulers of sequences on models without states, and with fewer candidate sequences than a batch could have."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, direct, io, oldest
from conftest import Folder
from graphs import model, op, running_sum, tensor
from prometheus import scrape
from report import load_report
from sequences import Reference, Tensors, check, largest_batches, play

F32 = np.float32
KINDS = ("START", "END", "READY")
CONTROLS = "control_input [{}, {}]".format(
    ", ".join(f'{{ name: "{kind}" control [{{ kind: CONTROL_SEQUENCE_{kind} fp32_false_true: [0, 1] }}] }}' for kind in KINDS),
    '{ name: "ID" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }] }',
)
INTEGERS = CONTROLS.replace("fp32", "int32")
NOTE = "served without states under sequence_batching"


def controlled() -> ModelProto:
    """Every control matters for y, and nothing is kept."""
    return model(
        op("Add", "x START -> a"),
        op("Mul", "a READY -> b"),
        op("Sub", "b END -> y"),
        op("Identity", "ID -> id"),
        inputs=[
            tensor("x", F32, "batch", 1),
            *(tensor(kind, F32, "batch", 1) for kind in KINDS),
            tensor("ID", np.uint64, "batch", 1),
        ],
        outputs=[tensor("y", F32, "batch", 1), tensor("id", np.uint64, "batch", 1)],
    )


def whole() -> ModelProto:
    """The same without a batch, as in Triton's own tests."""
    return model(
        op("Add", "x START -> a"),
        op("Mul", "a READY -> y"),
        inputs=[tensor(name, np.int32, 1) for name in ("x", "START", "READY")],
        outputs=[tensor("y", np.int32, 1)],
    )


def doubling() -> ModelProto:
    return model(op("Add", "x x -> y"), inputs=[tensor("x", F32, "batch", 3)], outputs=[tensor("y", F32, "batch", 3)])


def recurrent() -> ModelProto:
    """The client takes the state along."""
    return model(
        op("Add", "x h_in -> h_out"),
        op("Add", "h_out x -> y"),
        inputs=[tensor("x", F32, "batch", 3), tensor("h_in", F32, "batch", 3)],
        outputs=[tensor("y", F32, "batch", 3), tensor("h_out", F32, "batch", 3)],
    )


def counting() -> ModelProto:
    return model(
        op("Identity", "x -> y"),
        op("Identity", "count -> n"),
        inputs=[tensor("x", F32, "batch", 3), tensor("count", np.int64, "batch", 1)],
        outputs=[tensor("y", F32, "batch", 3), tensor("n", np.int64, "batch", 1)],
    )


X, Y = io("x", "FP32", 3), io("y", "FP32", 3)
ONE, CONTROLLED = [io("x", "FP32", 1)], [io("y", "FP32", 1), io("id", "UINT64", 1)]
LISTED = [X, io("h_in", "FP32", 3)], [Y, io("h_out", "FP32", 3)]
STATE = 'state [{ input_name: "s" output_name: "s_out" data_type: TYPE_FP32 dims: [3] }]'

MODELS = {
    "controls": Folder(config(ONE, CONTROLLED, oldest(3, CONTROLS)), controlled()),
    "controls_direct": Folder(config(ONE, CONTROLLED, direct(CONTROLS)), controlled()),
    "whole": Folder(config([io("x", "INT32", 1)], [io("y", "INT32", 1)], oldest(0, INTEGERS), batch=0), whole()),
    "whole_direct": Folder(config([io("x", "INT32", 1)], [io("y", "INT32", 1)], direct(INTEGERS), batch=0), whole()),
    "affinity": Folder(config([X], [Y]), doubling()),
    "affinity_direct": Folder(config([X], [Y], direct()), doubling()),
    "affinity_bare": Folder(config([X], [Y], "sequence_batching { direct { } }"), doubling()),
    "ends_do_not_run": Folder(config([X], [Y], infer_end_requests="0"), doubling()),
    "unbatched": Folder(config([io("x", "FP32", 1, 3)], [io("y", "FP32", 1, 3)], oldest(0), batch=0), doubling()),
    "listed": Folder(config(*LISTED), recurrent()),
    "listed_direct": Folder(config(*LISTED, direct()), recurrent()),
    "counting": Folder(config([X], [Y, io("n", "INT64", 1)], derived_inputs="count = steps"), counting()),
    "few": Folder(config([X], [Y], oldest(3, candidates=4), batch=16), running_sum("batch", 3)),
    "few_listed": Folder(config([X], [Y], oldest(3, STATE, candidates=4), batch=16), running_sum("batch", 3)),
    "one": Folder(config([X], [Y], oldest(0, candidates=1), batch=16), running_sum("batch", 3)),
}


def numbers(sequences: int, steps: int, extent: int = 3) -> list[list[Tensors]]:
    random = np.random.default_rng(sequences)
    return [[{"x": random.integers(-9, 10, (1, extent)).astype(F32)} for _ in range(steps)] for _ in range(sequences)]


@pytest.mark.parametrize("name", ["controls", "controls_direct"])
def test_controls(own_server, own_client, name):
    """Each lane has its own START, END, READY and CORRID, beside others at other steps."""
    reference = controlled()
    before = largest_batches(own_client, name)
    sequences = [steps[: 2 + at % 3] for at, steps in enumerate(numbers(8, 4, 1))]
    ids = [500 + at for at in range(8)]
    for sequence, steps, answers in zip(ids, sequences, play(own_client, name, sequences, ids=ids), strict=True):
        given = lambda sent, sequence=sequence, last=len(steps): {
            "START": np.array([[len(sent) == 1]], F32), "END": np.array([[len(sent) == last]], F32),
            "READY": np.ones((1, 1), F32), "ID": np.array([[sequence]], np.uint64),
        }  # fmt: skip
        for got, want in zip(answers, Reference(reference, given=given).answers(steps), strict=True):
            for output in ("y", "id"):
                np.testing.assert_array_equal(got[output], want[output], strict=True)
    after = largest_batches(own_client, name)
    assert any(size > 1 and count > before.get(size, 0) for size, count in after.items()), after
    report = load_report(own_server, name)
    assert "no states;" in report and "slots:" not in report, report


@pytest.mark.parametrize("name", ["whole", "whole_direct"])
def test_controls_without_a_batch(own_client, name):
    sequences = [[{"x": np.array([10 * at + step], np.int32)} for step in range(3)] for at in range(1 if "direct" in name else 4)]
    for steps, answers in zip(sequences, play(own_client, name, sequences), strict=True):
        given = lambda sent: {"START": np.array([len(sent) == 1], np.int32), "READY": np.ones(1, np.int32)}
        for got, want in zip(answers, Reference(whole(), rows=False, given=given).answers(steps), strict=True):
            np.testing.assert_array_equal(got["y"], want["y"], strict=True)


@pytest.mark.parametrize("name", ["affinity", "affinity_direct", "affinity_bare"])
def test_affinity(own_server, own_client, name):
    check(own_client, name, Reference(doubling()), numbers(8, 5), batched=name != "affinity_bare")
    assert own_server.log_text().count(NOTE) == 12, "one line for each model without states"


def test_unbatched(own_client):
    check(own_client, "unbatched", Reference(doubling(), rows=False), numbers(3, 3), batched=False)


def test_no_limit_but_the_server_s(own_server, own_client):
    """As many sequences as there are candidates are alive at once, and more wait for Triton only."""
    check(own_client, "affinity", Reference(doubling()), numbers(32, 3))
    samples = scrape(own_server.metrics_url, "stateful_").of("affinity")
    assert samples["stateful_slots_capacity"] == samples["stateful_sequences_active"] == 0
    assert samples["stateful_requests_unknown_total"] == samples['stateful_sequences_rejected_total{reason="full"}'] == 0
    assert samples["stateful_batch_size_count"] > 0


def test_ends_that_do_not_run(own_client):
    """An END that is not inferred has the placeholder for an answer, and its sequence can begin again."""
    for _ in range(2):
        answers = play(own_client, "ends_do_not_run", numbers(3, 3), ids=[71, 72, 73])
        for steps, got in zip(numbers(3, 3), answers, strict=True):
            for step, answer in zip(steps[:2], got[:2], strict=True):
                np.testing.assert_array_equal(answer["y"], 2 * step["x"])
            assert got[2]["y"].shape == (1, 1)


@pytest.mark.parametrize("name", ["listed", "listed_direct"])
def test_states_that_clients_pass(own_server, own_client, name):
    """An input that the configuration lists is the client's, whatever its name; one line says what to write if not."""
    random = np.random.default_rng(5)
    sequences = [
        [{key: random.integers(-9, 10, (1, 3)).astype(F32) for key in ("x", "h_in")} for _ in range(4)] for _ in range(6)
    ]
    check(own_client, name, Reference(recurrent()), sequences)
    assert (
        "remove them from input and write parameters { key: 'state_pairs' value { string_value: '<<<h_in, h_out>>>' } }"
        in own_server.log_text()
    )


def test_counts(own_client):
    """What is counted for each sequence is kept without states, too."""
    given = lambda sent: {"count": np.array([[len(sent) - 1]], np.int64)}
    check(own_client, "counting", Reference(counting(), given=given), numbers(6, 4))


@pytest.mark.parametrize("name", ["few", "few_listed"])
def test_fewer_candidates_than_lanes(own_client, name):
    """A batch has as many requests as there are candidates; every candidate has a slot."""
    check(own_client, name, Reference(running_sum("batch", 3), {"s": "s_out"}), numbers(4, 5))


@pytest.mark.parametrize("name", ["few", "few_listed", "one", "affinity_direct"])
def test_more_sequences_than_candidates(own_client, name):
    """They wait in Triton until others end."""
    sequences = numbers(12, 3)
    with ThreadPoolExecutor(12) as pool:
        played = list(pool.map(lambda steps: play(own_client, name, [steps])[0], sequences))
    for steps, answers in zip(sequences, played, strict=True):
        if name == "affinity_direct":
            want = [{"y": 2 * step["x"]} for step in steps]
        else:
            want = Reference(running_sum("batch", 3), {"s": "s_out"}).answers(steps)
        for got, expected in zip(answers, want, strict=True):
            np.testing.assert_array_equal(got["y"], expected["y"], strict=True)


SHORT = 'backend: "stateful"\nsequence_batching { oldest { max_candidate_sequences: 8 } }\n'


def test_a_missing_input_is_meant_as_a_state(refusal):
    """Where an input of the model is in no list, or no list is there, nothing is guessed."""
    unlisted = model(
        op("Add", "x q -> z"), op("Add", "z x -> y"),
        inputs=[tensor("x", F32, "batch", 3), tensor("q", F32, "batch", 3)],
        outputs=[tensor("y", F32, "batch", 3), tensor("z", F32, "batch", 3)],
    )  # fmt: skip
    remedy = "for a model without states, list each of its inputs in input, or remove sequence_batching"
    for name, text in {"unlisted": config([X], [Y]), "nothing_listed": SHORT}.items():
        why = refusal(name, Folder(text, unlisted))
        assert "could not find any state tensors" in why and remedy in why
        assert 'input "q"' in why or "inputs x, q" in why
    why = refusal("only_input", Folder(SHORT, doubling()))
    assert remedy in why and "<<<x, y>>>" not in why
