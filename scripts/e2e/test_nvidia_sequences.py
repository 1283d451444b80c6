"""The life of sequences: START and END in every order, ends that are not run, too many sequences, idle ones."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nvidia import FP32, PLAIN, Change, ModelConfig, fours, outcome, slots, statistics, together, variant
from streaming import Model, Stream

IDLE = 2  # seconds that a sequence of the model "idle" may idle
BATCH = 8


def idle(config: ModelConfig) -> None:
    slots(4, 10)(config)
    config.sequence_batching.max_sequence_idle_microseconds = int(1e6 * IDLE)


def patient(batch: int, candidates: int) -> Change:
    """Waits for full batches, for requests that are to meet in one."""

    def change(config: ModelConfig) -> None:
        slots(batch, candidates)(config)
        config.sequence_batching.oldest.preferred_batch_size[:] = [batch]
        config.sequence_batching.oldest.max_queue_delay_microseconds = 200_000

    return change


def start_control_alone(config: ModelConfig) -> None:
    """Of the controls only that of START, which the model has an input for."""
    slots(4, 32)(config)
    del config.sequence_batching.control_input[1:]


RUN, NOT_RUN = {"infer_end_requests": "1", **PLAIN}, {"infer_end_requests": "0", **PLAIN}

MODELS = {
    "run": variant(FP32, slots(4, 32), **RUN),
    "not_run": variant(FP32, slots(4, 32), **NOT_RUN),
    "nothing_but_ends": variant(FP32, patient(BATCH, 64), **NOT_RUN),
    "ends_and_requests": variant(FP32, patient(BATCH, 64), **NOT_RUN),
    "meeting": variant(FP32, patient(2, 64), **RUN),
    "start_alone": variant(FP32, start_control_alone, **RUN),
    "nine_slots": variant(FP32, slots(4, 10), **RUN),  # 90 % of ten
    "ratio_one": variant(FP32, slots(4, 4), **RUN, max_candidate_sequence_use_ratio="1"),
    "ratio_half": variant(FP32, slots(4, 10), **RUN, max_candidate_sequence_use_ratio="0.5"),
    "idle": variant(FP32, idle, **RUN),
}


@pytest.fixture(params=["run", "not_run"])
def either(request: pytest.FixtureRequest) -> Iterator[str]:
    """A model, of either way to treat END."""
    return request.param


def end(client, model: str, *sequences: int) -> None:
    for sequence in sequences:
        fours(client, model, sequence, end=True)


def test_whole_sequence_in_one_request(own_client, either):
    """START and END together, again and again, next to a sequence that is older and one that is younger.

    The C++ backend, where END is not run, freed the slot of another sequence by it.
    """
    assert fours(own_client, either, 1, start=True) == 4
    for count in range(2, 5):
        assert fours(own_client, either, 50, start=True, end=True) == (4 if either == "run" else 0)
        assert fours(own_client, either, 100 + count, 10, start=True) == 40
        assert fours(own_client, either, 1) == 4 * count
    for count in range(2, 5):
        assert fours(own_client, either, 100 + count, 10) == 80
    end(own_client, either, 1, 102, 103, 104)


def test_batch_of_nothing_but_ends(own_server, own_client):
    """All succeed with an answer, and count as successes; the server's times of the batch are no nonsense."""
    model = "nothing_but_ends"
    together(*(lambda i=i: fours(own_client, model, 1 + i, start=True) for i in range(BATCH)))
    assert together(*(lambda i=i: fours(own_client, model, 1 + i, end=True) for i in range(BATCH))) == [0] * BATCH
    assert outcome(own_server, model, 2 * BATCH) == (2 * BATCH, 0)
    batches = statistics(own_server, model)["batch_stats"]
    assert [each["batch_size"] for each in batches] == [BATCH]
    assert batches[0]["compute_infer"]["ns"] < 60e9  # the C++ backend's were about 2^64


def test_ends_and_requests_in_one_batch(own_server, own_client):
    """END requests that are not run, in one batch with requests that are: none gets the other's answer or statistics."""
    model = "ends_and_requests"
    ids = range(20, 20 + BATCH)
    together(*(lambda i=i: fours(own_client, model, i, i, start=True) for i in ids))
    answers = together(*(lambda i=i: fours(own_client, model, i, i, end=i % 2 == 0) for i in ids))
    assert answers == [0 if i % 2 == 0 else 8 * i for i in ids]
    end(own_client, model, *(i for i in ids if i % 2))
    assert outcome(own_server, model, 2 * BATCH + BATCH // 2) == (2 * BATCH + BATCH // 2, 0)


def test_same_id_ends_and_starts_in_one_batch(own_server, own_client):
    """Triton forgets an ID when its END is queued, so the new sequence can meet the old one's END in a batch.

    It does if it gets another of Triton's slots; here the one that sequence 6 has left, which comes first.
    """
    name = "meeting"
    served = Model.on(own_client, name)
    ones = {"Input": np.ones((1, 4, 1, 5), np.float32)}
    fours(own_client, name, 6, start=True)
    assert fours(own_client, name, 7, start=True) == 4
    end(own_client, name, 6)
    with Stream(own_client) as stream:
        stream.send(served, 7, ones, request="old", end=True)
        stream.send(served, 7, ones, request="new", start=True)
        answers = {each.request: each.result.as_numpy("Output").flat[0] - 1 for each in (stream.receive(), stream.receive())}
    assert answers == {"old": 8, "new": 4}
    assert fours(own_client, name, 7, end=True) == 8
    stats = statistics(own_server, name, 6)
    assert stats["execution_count"] == 5  # of six requests: two were one batch


def test_ids_of_both_kinds_and_ends_without_their_controls(own_client):
    """The C++ backend ended the server at a text, and took START for END."""
    for flags, want in (({"start": True}, 4), ({}, 8), ({"end": True}, 12)):
        for factor, sequence in enumerate([1, "1", "one", 2**40], start=1):
            assert fours(own_client, "start_alone", sequence, factor, **flags) == want * factor
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        fours(own_client, "start_alone", "1")


@pytest.mark.parametrize(("model", "room"), [("nine_slots", 9), ("ratio_one", 4), ("ratio_half", 5)])
def test_too_many_sequences(own_client, model, room):
    """The one for which there is no slot is refused at once, all others go on, and it is welcome when there is room."""
    ids = list(range(1, room + 1))
    for i in ids:
        assert fours(own_client, model, i, i, start=True) == 4 * i
    late = room + 1
    if model != "ratio_one":  # there Triton itself keeps the sequence waiting, having no slot for it either
        with pytest.raises(InferenceServerException, match=rf"{room} of {room} slots are taken") as refusal:
            fours(own_client, model, late, start=True)
        assert refusal.value.status() == "StatusCode.INTERNAL"
        with pytest.raises(InferenceServerException, match="its START was refused .* begin it again"):
            fours(own_client, model, late)
    end(own_client, model, 1)
    assert fours(own_client, model, late, start=True) == 4
    for i in ids[1:]:
        assert fours(own_client, model, i, i, end=True) == 8 * i
    assert fours(own_client, model, late, end=True) == 8


def test_refused_start_that_ends(own_client):
    """An END for a sequence that never got a slot frees no other slot."""
    for i in range(1, 10):
        fours(own_client, "nine_slots", i, i, start=True)
    for flags in ({"start": True}, {"end": True}, {"start": True, "end": True}):
        with pytest.raises(InferenceServerException, match="slots are taken|START was refused"):
            fours(own_client, "nine_slots", 10, **flags)
    for i in range(1, 10):
        assert fours(own_client, "nine_slots", i, i, end=True) == 8 * i


def test_idle_sequences_give_their_slots_back(own_client):
    """Neither Triton, which has forgotten them, nor the backend waits for them."""
    for i in range(1, 10):
        fours(own_client, "idle", i, start=True)
    time.sleep(1.4 * IDLE)
    for i in range(11, 20):
        assert fours(own_client, "idle", i, start=True) == 4
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        fours(own_client, "idle", 1)
    end(own_client, "idle", *range(11, 20))


def test_a_sequence_in_use_does_not_idle(own_client):
    """Longer than the limit, but never that long without a request; and slots that others need do not change that."""
    assert fours(own_client, "idle", 30, start=True) == 4
    for count in range(2, 6):
        time.sleep(0.28 * IDLE)
        for other in range(40, 44):
            fours(own_client, "idle", other, start=True, end=True)
        assert fours(own_client, "idle", 30) == 4 * count
    end(own_client, "idle", 30)


def test_nothing_of_an_older_sequence_is_seen(own_client):
    """A slot that was full of something else starts from zero, in whatever way it got free."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        i = int(rng.integers(60, 66))
        assert fours(own_client, "run", i, 1000 + i, start=True) == 4 * (1000 + i)
        assert fours(own_client, "run", i, 1, end=bool(rng.integers(2))) == 4 * (1001 + i)
    for i in range(60, 66):
        fours(own_client, "run", i, start=True, end=True)
