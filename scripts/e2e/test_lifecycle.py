"""What a client is told when its sequence has no state: code, text, remedy; and the limit of memory."""

import time

import numpy as np
import pytest
from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, running_sum, tensor
from tritonclient.utils import InferenceServerException
from unary import infer

F32 = np.float32


def tape():
    """The state grows by what each request brings: s_out = s and x; y is the last element."""
    return model(
        op("Concat", "s x -> s_out", axis=1),
        op("ReduceSum", "x axis -> y", keepdims=1),
        inputs=[tensor("s", F32, "batch", "old"), tensor("x", F32, "batch", "more")],
        outputs=[tensor("s_out", F32, "batch", "new"), tensor("y", F32, "batch", 1)],
        constants={"axis": np.array([1])},
    )


def small(**parameters: str) -> str:
    """Two slots for many sequences of Triton's."""
    return config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0, candidates=200), batch=2,
                  max_candidate_sequence_use_ratio="0.01", **parameters)  # fmt: skip


def limited(**parameters: str) -> Folder:
    grown = config([io("x", "FP32", -1)], [io("y", "FP32", 1)], oldest(0), max_state_memory_bytes="1024", **parameters)
    return Folder(grown, tape())


MODELS = {
    "reject": Folder(small(), running_sum("batch", 3)),
    "evict": Folder(small(when_full="evict_lru"), running_sum("batch", 3)),
    "idle": Folder(
        config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0).replace("60000000", "1000000")), running_sum("batch", 3)
    ),
    "budget": limited(),
    "budget_evicts": limited(when_full="evict_lru"),
}


class Model:
    def __init__(self, client, name: str):
        self.client, self.name = client, name

    def step(self, sequence: int, n: int = 3, **flags) -> float:
        return float(infer(self.client, self.name, sequence, {"x": np.ones((1, n), F32)}, **flags)["y"].flat[0])

    def refuses(self, text: str, code: str, *step, **flags) -> None:
        with pytest.raises(InferenceServerException, match=text) as refusal:
            self.step(*step, **flags)
        assert refusal.value.status() == f"StatusCode.{code}"


def test_reject(own_client):
    """The third sequence is refused until one ends; the others are not touched."""
    m = Model(own_client, "reject")
    assert m.step(1, start=True) == m.step(2, start=True) == 1
    full = r"sequence 3: too many simultaneous sequences: 2 of 2 slots are taken; try again later, end sequences"
    m.refuses(full, "INTERNAL", 3, start=True)
    refused = r"sequence 3: its START was refused \d+\S*s ago because there was no free slot; begin it anew with a START"
    m.refuses(refused, "INVALID_ARGUMENT", 3)
    assert m.step(1) == 2 and m.step(2, end=True) == 2
    m.refuses(refused, "INVALID_ARGUMENT", 3)  # a free slot is not enough: it needs a START
    assert m.step(3, start=True) == 1 and m.step(3, end=True) == 2 and m.step(1, end=True) == 3


def test_evict(own_client):
    """The sequence that was used least recently gives way, and is told so."""
    m = Model(own_client, "evict")
    assert m.step(1, start=True) == m.step(2, start=True) == 1 and m.step(1) == 2
    assert m.step(3, start=True) == 1
    evicted = r"sequence 2: its state was evicted \d+\S*s ago to make room for another sequence; begin it anew with a START"
    m.refuses(evicted, "INVALID_ARGUMENT", 2)
    m.refuses(evicted, "INVALID_ARGUMENT", 2)
    assert m.step(1) == 3 and m.step(2, start=True) == 1


def test_idle(own_client):
    """Triton forgets an idle sequence by itself; nobody can go on with it, and a START begins from nothing."""
    m = Model(own_client, "idle")
    assert m.step(1, start=True) == 1 and m.step(1) == 2
    deadline = time.monotonic() + 20
    time.sleep(1.5)
    while True:
        try:
            m.step(1)  # not looked at by Triton yet, so it is not idle any more
        except InferenceServerException as failure:
            assert "must specify the START flag" in failure.message()
            break
        assert time.monotonic() < deadline
        time.sleep(3)
    assert m.step(1, start=True) == 1


def test_budget(own_client):
    """What would exceed the limit is refused; the state stays as it is, and the client may try again."""
    m = Model(own_client, "budget")
    m.step(1, 128, start=True)  # 512 bytes
    m.step(2, 64, start=True)
    over = r"the states take 768 bytes and would grow by 512: at most 1024 bytes are allowed \(max_state_memory_bytes\)"
    m.refuses(over, "UNAVAILABLE", 1, 1)
    m.refuses(over, "UNAVAILABLE", 1, 1)
    m.step(2, 1, end=True)
    m.step(1, 1)


def test_budget_evicts(own_client):
    m = Model(own_client, "budget_evicts")
    m.step(1, 128, start=True)
    m.step(2, 64, start=True)
    m.step(1, 1)
    m.refuses("sequence 2: its state was evicted", "INVALID_ARGUMENT", 2, 1)
    m.refuses(r"would grow by 2048: at most 1024 bytes", "UNAVAILABLE", 3, 512, start=True)
    m.step(1, 1)  # nobody gave way for what never fits
