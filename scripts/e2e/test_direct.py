"""The direct scheduler gives away the batch slots of sequences that were idle or cancelled, and tells the backend nothing: no
START may be refused for them, and no sequence that goes on may suffer."""

import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from configs import config, direct, io
from conftest import Folder
from graphs import running_sum
from unary import infer, tensor

F32 = np.float32
PLACES = 4
IDLE = 0.5  # seconds
TWO_INSTANCES = "instance_group [{ count: 2 kind: KIND_CPU }]"


def folder(scheduler: str, **more: str) -> Folder:
    return Folder(config([io("x", "FP32", 3)], [io("y", "FP32", 3)], scheduler, batch=PLACES, **more), running_sum("batch", 3))


IDLES = {"idle": int(IDLE * 1e6)}
WAITS = direct(delay=300_000)  # so long that a request can be cancelled before it runs
MODELS = {
    "at_once": folder(direct(delay=0, utilization=0, **IDLES)),
    "delayed": folder(direct(delay=5_000, utilization=1, **IDLES)),
    "half": folder(direct(delay=20_000, utilization=0.5, **IDLES)),
    "of_two": folder(direct(delay=5_000, utilization=1, **IDLES), group=TWO_INSTANCES),
    "evicting": folder(direct(delay=5_000, utilization=1, **IDLES), when_full="evict_lru"),
    "waits": folder(WAITS),
    "waits_evicting": folder(WAITS, when_full="evict_lru"),
}
IDLING = ["at_once", "delayed", "half", "of_two", "evicting"]

_ids = itertools.count(1)


def step(client, name: str, sequence: int, **flags: bool) -> float:
    """The number of steps that the sequence has had."""
    return float(infer(client, name, sequence, {"x": np.ones((1, 3), F32)}, **flags)["y"].flat[0])


def cancelled(client, name: str, *sequences: int) -> None:
    """Sends a request of each sequence and takes all back while they wait."""
    ones = tensor("x", np.ones((1, 3), F32))
    calls = [client.async_infer(name, [ones], lambda result, error: None, sequence_id=each) for each in sequences]
    time.sleep(0.05)
    for call in calls:
        call.cancel()


@pytest.mark.parametrize("name", IDLING)
def test_sequences_that_never_end(own_client, name):
    """Twice as many clients as places START at once: half of them wait until Triton has dropped the others."""
    with ThreadPoolExecutor(4 * PLACES) as pool:
        for _ in range(3):
            starts = [pool.submit(step, own_client, name, next(_ids), start=True) for _ in range(4 * PLACES)]
            assert [start.result() for start in starts] == [1] * 4 * PLACES


@pytest.mark.parametrize("name", ["waits", "waits_evicting"])
def test_cancelled_sequences(own_client, name):
    """Those that were cancelled make room, though the others were used less recently."""
    first, second, third, fourth = sequences = [next(_ids) for _ in range(PLACES)]
    with ThreadPoolExecutor(PLACES) as pool:
        starts = [pool.submit(step, own_client, name, each, start=True) for each in sequences]
        assert [start.result() for start in starts] == [1] * PLACES
    assert step(own_client, name, first) == step(own_client, name, second) == 2
    cancelled(own_client, name, first, second)
    began = time.monotonic()
    fifth, sixth = next(_ids), next(_ids)
    assert step(own_client, name, fifth, start=True) == step(own_client, name, sixth, start=True) == 1
    assert time.monotonic() - began < 30, "half of the idle limit"
    assert step(own_client, name, third) == step(own_client, name, fourth) == 2
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        step(own_client, name, first)
    for each in (third, fourth, fifth, sixth):
        step(own_client, name, each, end=True)


@pytest.mark.parametrize("name", IDLING)
def test_sequences_that_go_on_are_spared(own_client, name):
    """Whatever others do, a sequence that its client goes on with gets the sum of what it sent. Triton itself may drop
    one on a busy machine, and says so."""
    finished = time.monotonic() + 2

    def client(seed: int) -> int:
        rng, steps = random.Random(seed), 0
        while time.monotonic() < finished:
            sequence = next(_ids)
            try:
                assert step(own_client, name, sequence, start=True) == 1
                for count in range(2, rng.randint(3, 30)):
                    assert step(own_client, name, sequence) == count
                    steps += 1
                match rng.choice(["end", "end", "idle", "cancel"]):
                    case "end":
                        step(own_client, name, sequence, end=True)
                    case "cancel":
                        cancelled(own_client, name, sequence)
            except InferenceServerException as error:
                if "must specify the START flag" not in str(error):
                    raise
        return steps

    with ThreadPoolExecutor(3 * PLACES) as pool:
        assert sum(pool.map(client, range(3 * PLACES))) > 100
