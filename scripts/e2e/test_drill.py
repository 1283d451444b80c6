"""Short drills (go run build.go drill): servers that are killed, stopped and updated, and mistakes, on the real parts."""

import os
import subprocess
import time

import numpy as np
import pytest

from drills import killing, parts, refusals, rolling, stale
from drills.branches import Branches, given_up
from drills.clients import Tally
from drills.cluster import Cluster
from drills.findings import Finding
from drills.model import hashed
from drills.parts import Envoy, HAProxy
from tritonserver import ROOT


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.good]


@pytest.mark.parametrize("proxy", [Envoy, HAProxy])
def test_killed_servers(proxy):
    if proxy is HAProxy:
        try:
            parts.haproxy()
        except parts.NotAvailable as why:
            pytest.skip(str(why))
    found = killing.kill(minutes=5 / 60, sequences=30, every=2, proxy=proxy, patience=3)
    assert bad(found) == []


def test_the_client_in_go():
    """Two servers are killed, one after the other, while sequences of the Go client run on them."""
    with Cluster(killing.MODELS, proxy=None) as cluster:
        addresses = ",".join(server.grpc_url for server in cluster.servers)
        test = ["go", "test", "-run", "^TestServers$", "-count", "1", "./stateful"]
        with subprocess.Popen(
            test, cwd=ROOT / "clients" / "go", env=os.environ | {"STATEFUL_SERVERS": addresses},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as client:  # fmt: skip
            while client.poll() is None:
                for server in cluster.servers:
                    time.sleep(1)
                    cluster.restart(server)
            assert client.returncode == 0, client.stdout.read()


def test_a_stopped_server():
    found = stale.stale(sequences=10)
    assert bad(found) == []


def test_updated_servers():
    found = rolling.rolling(sequences=20, rounds=1, seconds=1)
    assert bad(found) == []


def test_mistakes():
    found = refusals.refusals()
    assert bad(found) == []


class Answer:
    def __init__(self, *values: int):
        self.values = values

    def as_numpy(self, name: str) -> np.ndarray:
        return np.array([self.values])


@pytest.mark.parametrize(
    "values, foreign, wrong",
    [((7, 7, 3, 99), 0, 0), ((6, 7, 3, 99), 1, 0), ((7, 8, 3, 99), 1, 0), ((7, 7, 2, 99), 0, 1), ((7, 7, 3, 98), 0, 1)],
)
def test_wrong_answers_are_seen(values, foreign, wrong):
    tally = Tally()
    tally.check(Answer(*values), name=7, steps=3, hash=99)
    assert (tally.answers, tally.foreign, tally.wrong) == (1, foreign, wrong)


def hash_of(*values: int) -> int:
    hash = 0
    for value in values:
        hash = hashed(hash, value)
    return hash


def test_answers_without_replay():
    known = Branches()
    for steps, value in enumerate((1, 2, 3)):
        assert known.answer(value, steps + 1, hash_of(*range(1, value + 1))) is not None
    three = known.newest
    # A server dies, and the sequence goes on after the first step.
    known.no_answer(4)
    base = known.answer(5, 2, hash_of(1, 5))
    assert base.steps == 1 and [state.steps for state in given_up(three, base)] == [3, 2]
    # Its first server was only cut off, and has done the step without an answer.
    other, base = known.newest, known.answer(6, 5, hash_of(1, 2, 3, 4, 6))
    assert base is three and [state.steps for state in given_up(other, base)] == [2]
    # The other one owns it.
    stale, base = known.newest, known.answer(7, 3, hash_of(1, 5, 7))
    assert base is other and [state.steps for state in given_up(stale, base)] == [5, 4, 3, 2]


@pytest.mark.parametrize(
    "steps, hash",
    [
        (4, hash_of(1, 2, 9, 4)),  # a step that nobody asked for
        (4, hash_of(1, 2, 4)),  # one too few
        (3, hash_of(1, 2, 3, 4)),  # another number of steps than there are
        (4, hash_of(2, 1, 3, 4)),
        (5, hash_of(1, 2, 3, 3, 4)),  # a step that was done twice
        (6, hash_of(1, 2, 3, 8, 8, 4)),  # the same, without an answer
    ],
)
def test_wrong_answers_without_replay(steps, hash):
    known = Branches()
    for value in (1, 2, 3):
        known.answer(value, value, hash_of(*range(1, value + 1)))
    known.no_answer(8)
    assert known.answer(4, steps, hash) is None
