"""What a client is told when its sequence has no state: code, text, remedy; and the limits of memory. With each scheduler."""

import queue
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import ModelProto, helper
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest
from conftest import Client, Folder
from graphs import model, op, running_sum, tensor
from unary import infer
from unary import tensor as tensor_of

F32 = np.float32


def growing_state():
    """The state grows by what each request brings: s_out = s and x; y is the last element."""
    return model(
        op("Concat", "s x -> s_out", axis=1),
        op("ReduceSum", "x axis -> y", keepdims=1),
        inputs=[tensor("s", F32, "batch", "old"), tensor("x", F32, "batch", "more")],
        outputs=[tensor("s_out", F32, "batch", "new"), tensor("y", F32, "batch", 1)],
        constants={"axis": np.array([1])},
    )


def slow() -> ModelProto:
    """A running sum that takes its time: as many rounds of a loop as its input "rounds" says. Any other than 0 of "fails"
    makes the run fail."""
    body = helper.make_graph(
        [op("Identity", "go -> goes"), op("Identity", "carried -> carries")],
        "round",
        [tensor("round", np.int64), tensor("go", bool), tensor("carried", F32)],
        [tensor("goes", bool), tensor("carries", F32)],
    )
    nodes = [
        op("Squeeze", "rounds -> count"),
        op("Loop", "count . zero -> nothing", body=body),
        op("Squeeze", "fails -> at"),
        op("Gather", "only at -> one"),
        op("Mul", "x one -> known"),
        op("Add", "known nothing -> more"),
    ]
    told = [tensor(name, np.int64, "batch", 1) for name in ("rounds", "fails")]
    constants = {"zero": np.float32(0), "only": np.ones(1, F32)}
    return running_sum("batch", 3, nodes=nodes, term="more", inputs=told, constants=constants)


def vocabulary() -> ModelProto:
    """A running sum of what stands for each token; there are four, and any other makes the run fail."""
    return model(
        op("Gather", "words token -> word"),
        op("Add", "s word -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("token", np.int64, "batch", 1), tensor("s", F32, "batch", 1)],
        outputs=[tensor("y", F32, "batch", 1), tensor("s_out", F32, "batch", 1)],
        constants={"words": np.array([1, 10, 100, 1000], F32)},
    )


def small(**parameters: str) -> str:
    """Two slots for many sequences of Triton's."""
    return config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0, candidates=200), batch=2,
                  max_candidate_sequence_use_ratio="0.01", **parameters)  # fmt: skip


def limited(**parameters: str) -> Folder:
    grown = config([io("x", "FP32", -1)], [io("y", "FP32", 1)], oldest(0), max_state_memory_bytes="1024", **parameters)
    return Folder(grown, growing_state())


IDLE = oldest(0).replace("60000000", "1000000")
SLOW = ([io("x", "FP32", 3), io("rounds", "INT64", 1), io("fails", "INT64", 1)], [io("y", "FP32", 3)])

SCHEDULERS = ["oldest", "direct", "free"]

MODELS = {
    "reject": Folder(small(), running_sum("batch", 3)),
    "evict": Folder(small(when_full="evict_lru"), running_sum("batch", 3)),
    "idle": Folder(config([io("x", "FP32", 3)], [io("y", "FP32", 3)], IDLE), running_sum("batch", 3)),
    "forgets": Folder(
        config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0, candidates=2000), batch=2,
               max_candidate_sequence_use_ratio="0.001"),
        running_sum("batch", 3),
    ),
    "slow": Folder(config(*SLOW, IDLE, batch=1, max_candidate_sequence_use_ratio="0.0625"), slow()),
    "queues": Folder(config(*SLOW, IDLE.replace("1000000", "300000"), batch=1, max_candidate_sequence_use_ratio="0.5"), slow()),
    "fails": Folder(config(*SLOW, oldest(0), batch=1), slow()),
    "tokens": Folder(config([io("token", "INT64", 1)], [io("y", "FP32", 1)], oldest(3)), vocabulary()),
    "grows": Folder(config([io("x", "FP32", -1)], [io("y", "FP32", 1)], oldest(0), max_state_bytes="256"), growing_state()),
    "budget": limited(),
    "budget_evicts": limited(when_full="evict_lru"),
}  # fmt: skip


# How each scheduler has it: the code of the answer to a request whose sequence has lost its state or has none, what is said
# of one that was never begun, and by whom; and what the configuration calls the limits.
LOST = {"oldest": "INVALID_ARGUMENT", "direct": "INVALID_ARGUMENT", "free": "NOT_FOUND"}
NEVER_BEGUN = {
    "oldest": "must specify the START flag",  # Triton
    "direct": "must specify the START flag",
    "free": "no such sequence is known; begin it again with a START",  # the backend
}
SLOTS = {"oldest": "max_candidate_sequences", "direct": "max_batch_size", "free": "max_sequences"}

# A START for which there is no slot waits in Triton with direct, so nothing is refused or evicted for one.
REFUSES = pytest.mark.schedulers("oldest", "free")


class Model:
    def __init__(self, client: Client, name: str):
        self.client, self.name = client, name
        self.lost = LOST[client.scheduler]

    def step(self, sequence: int, n: int = 3, **flags) -> float:
        return float(infer(self.client, self.name, sequence, {"x": np.ones((1, n), F32)}, **flags)["y"].flat[0])

    def slow_step(self, sequence: int, rounds: int = 0, fails: int = 0, **flags) -> float:
        return float(infer(self.client, self.name, sequence, slow_values(rounds, fails), **flags)["y"].flat[0])

    def rounds(self, seconds: float) -> int:
        """How many take so long."""
        a_second = 0.0
        for _ in range(3):  # the fastest counts: others may have had the processor
            began = time.perf_counter()
            self.slow_step(1, 20_000, start=True, end=True)
            a_second = max(a_second, 20_000 / (time.perf_counter() - began))
        return round(seconds * a_second)

    def refuses(self, text: str, code: str, *step, **flags) -> None:
        with pytest.raises(InferenceServerException, match=text) as refusal:
            self.step(*step, **flags)
        assert refusal.value.status() == f"StatusCode.{code}"


def slow_values(rounds: int, fails: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.ones((1, 3), F32), "rounds": np.array([[rounds]]), "fails": np.array([[fails]])}


def test_never_begun(own_client, scheduler):
    """A request without START of a sequence that nobody knows."""
    Model(own_client, "reject").refuses(NEVER_BEGUN[scheduler], LOST[scheduler], 9)


@REFUSES
def test_reject(own_client, scheduler):
    """The third sequence is refused until one ends; the others are not touched."""
    m = Model(own_client, "reject")
    assert m.step(1, start=True) == m.step(2, start=True) == 1
    full = r"sequence 3: too many simultaneous sequences: 2 of 2"
    m.refuses(full, "INTERNAL", 3, start=True)
    refused = r"sequence 3: its START was refused \d+\S*s ago .* 2 slots \(" + SLOTS[scheduler]
    m.refuses(refused, m.lost, 3)
    assert m.step(1) == 2 and m.step(2, end=True) == 2
    m.refuses(refused, m.lost, 3)  # a free slot is not enough: it needs a START
    assert m.step(3, start=True) == 1 and m.step(3, end=True) == 2 and m.step(1, end=True) == 3


@pytest.mark.schedulers("direct")
@pytest.mark.parametrize("name", ["reject", "evict"])
def test_third_waits(own_client, name):
    """With direct, Triton lets a third START wait until one of two sequences ends, whatever when_full is."""
    m = Model(own_client, name)
    assert m.step(1, start=True) == m.step(2, start=True) == 1
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(m.step, 3, start=True)
        assert [m.step(1) for _ in range(20)] == list(range(2, 22)) and not third.done()
        assert m.step(2, end=True) == 2 and third.result() == 1
    assert m.step(3, end=True) == 2 and m.step(1, end=True) == 22


@REFUSES
def test_evict(own_client, scheduler):
    """The sequence that was used least recently gives way, and is told so."""
    m = Model(own_client, "evict")
    assert m.step(1, start=True) == m.step(2, start=True) == 1 and m.step(1) == 2
    assert m.step(3, start=True) == 1
    evicted = r"sequence 2: its state was evicted \d+\S*s ago .* 2 slots \(" + SLOTS[scheduler]
    m.refuses(evicted, m.lost, 2)
    m.refuses(evicted, m.lost, 2)
    assert m.step(1) == 3 and m.step(2, start=True) == 1


@pytest.mark.schedulers("oldest", "direct")
def test_idle(own_client):
    """Triton forgets an idle sequence by itself; it cannot go on, and a START begins from nothing. For free sequences, see
    test_free.py::test_idle."""
    m = Model(own_client, "idle")
    assert m.step(1, start=True) == 1 and m.step(1) == 2
    deadline = time.monotonic() + 20
    time.sleep(1.5)
    while True:
        try:
            m.step(1)  # not looked at by Triton yet, so it is not idle any more
        except InferenceServerException as failure:
            assert "must specify the START flag" in failure.message() and failure.status() == "StatusCode.INVALID_ARGUMENT"
            break
        assert time.monotonic() < deadline
        time.sleep(3)
    assert m.step(1, start=True) == 1


@pytest.mark.schedulers("oldest")
def test_expired(own_client):
    """Who waits in the queue for longer than the idle limit loses the slot to a START before it, and is told so. Triton
    counts from the arrival of the requests and lets them through. With direct the START would wait in Triton, and a free
    sequence does not expire while a batch runs.
    """
    m = Model(own_client, "slow")
    four_seconds = m.rounds(4)
    assert m.slow_step(1, start=True) == m.slow_step(2, start=True) == 1
    with ThreadPoolExecutor(2) as pool:
        queued = [pool.submit(m.slow_step, 2, four_seconds)]
        time.sleep(0.2)
        queued.append(pool.submit(m.slow_step, 3, start=True))
        time.sleep(0.2)
        with pytest.raises(InferenceServerException) as lost:
            m.slow_step(1)
        assert [step.result() for step in queued] == [2, 1]
    assert re.fullmatch(
        r".*sequence 1: its state expired \d+\S*s ago, .* 1s \(max_sequence_idle_microseconds\); .*",
        lost.value.message(),
    )
    assert lost.value.status() == "StatusCode.INVALID_ARGUMENT"


@pytest.mark.schedulers("oldest", "free")  # with direct, a batch of one is one sequence at a time
def test_queued(own_client):
    """Four clients send more than the model can do, so that each waits longer than twice the idle limit for its turn.
    There are slots for all, and no state is lost."""
    turn = Model(own_client, "queues").rounds(0.19)
    answers = queue.Queue()
    own_client.start_stream(lambda result, error: answers.put(error or float(result.as_numpy("y").flat[0])))
    for step in range(4):
        for sequence in range(1, 5):
            given = [tensor_of(name, value) for name, value in slow_values(turn).items()]
            flags = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 3}
            own_client.async_stream_infer("queues", given, **flags)
        time.sleep(0.1)
    told = [answers.get(timeout=60) for _ in range(4 * 4)]
    own_client.stop_stream()
    assert told == [step for step in range(1, 5) for _ in range(4)]


@REFUSES
def test_unknown(own_client):
    """The backend remembers the last 1024 sequences that lost their state; of those before it knows nothing."""
    m = Model(own_client, "forgets")
    m.step(1, start=True), m.step(2, start=True)
    for sequence in range(3, 3 + 1025):
        m.refuses("too many simultaneous sequences: 2 of 2 slots", "INTERNAL", sequence, start=True)
    m.refuses("sequence 3: no such sequence is known", m.lost, 3)
    m.refuses("sequence 4: its START was refused", m.lost, 4)


def test_failed_run(own_client, scheduler):
    """The state is as before; a START that failed leaves none."""
    m = Model(own_client, "fails")
    for sequence, flags in ((5, {"start": True}), (4, {})):
        if sequence == 4:
            if scheduler == "direct":  # which has one batch slot, in a batch of one
                m.slow_step(5, start=True, end=True)
            assert m.slow_step(4, start=True) == 1
        with pytest.raises(InferenceServerException, match="error during inference: .*Gather") as failure:
            m.slow_step(sequence, fails=7, **flags)
        assert failure.value.status() == "StatusCode.INVALID_ARGUMENT"
        if sequence == 5:
            with pytest.raises(InferenceServerException, match=r"START failed \d+\S*s ago") as failure:
                m.slow_step(5)
            assert failure.value.status() == f"StatusCode.{m.lost}"
    assert m.slow_step(4) == 2


def test_bad_value_fails_alone(own_client, scheduler):
    """A token that the model does not have is the error of who sent it; others of its batch are answered, STARTs too."""

    def sends(token: int, sequence: int, **flags) -> float | str:
        try:
            return float(infer(own_client, "tokens", sequence, {"token": np.array([[token]])}, **flags)["y"].item())
        except InferenceServerException as failure:
            what = re.sub(r":? .*", "", failure.message())
            assert failure.status() == f"StatusCode.{LOST[scheduler] if what == 'sequence' else 'INVALID_ARGUMENT'}"
            return what

    def batch(*tokens: int, **flags) -> list[float | str]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(lambda at: sends(tokens[at], 1 + at, **flags), range(3)))

    assert batch(1, 7, 2, start=True) == [10, "error", 100]
    assert batch(0, 0, 7) == [11, "sequence", "error"]
    assert batch(0, 3, 0) == [12, "sequence", 101]
    assert batch(3, 3, 3, start=True, end=True) == [1000, 1000, 1000]


def test_state_limit(own_client):
    """A state that would grow beyond max_state_bytes stays as it is."""
    m = Model(own_client, "grows")
    m.step(1, 60, start=True)
    over = r'state "s" would grow to 260 bytes .* 256 bytes are allowed \(max_state_bytes\)'
    m.refuses(over, "INVALID_ARGUMENT", 1, 5)
    m.step(1, 4)


def test_budget(own_client):
    """What would exceed the limit is refused; the state stays as it is, and the client may try again."""
    m = Model(own_client, "budget")
    m.step(1, 128, start=True)  # 512 bytes
    m.step(2, 64, start=True)
    over = r"768 bytes and would grow by 512: .* \(max_state_memory_bytes\)"
    m.refuses(over, "UNAVAILABLE", 1, 1)
    m.refuses(over, "UNAVAILABLE", 1, 1)
    m.refuses(r"\(max_state_memory_bytes\)", "UNAVAILABLE", 3, 128, start=True)
    limit = r".* 1024 bytes \(max_state_memory_bytes\)"
    m.refuses(r"sequence 3: its START failed \d+\S*s ago" + limit, m.lost, 3)
    m.step(2, 1, end=True)
    m.step(1, 1)


def test_budget_evicts(own_client):
    m = Model(own_client, "budget_evicts")
    m.step(1, 128, start=True)
    m.step(2, 64, start=True)
    m.step(1, 1)
    m.refuses(r"sequence 2: its state was evicted \S+ ago .* 1024 bytes \(max_state_memory_bytes\)", m.lost, 2, 1)
    m.refuses(r"would grow by 2048: at most 1024 bytes", "UNAVAILABLE", 3, 512, start=True)
    m.step(1, 1)  # nothing was evicted for what never fits
