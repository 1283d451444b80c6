"""Short drills (go run build.go drill): servers that are killed, stopped and updated, and mistakes, on the real parts."""

import os
import subprocess
import time

import numpy as np
import pytest

from drills import killing, parts, refusals, rolling, stale
from drills.clients import Tally
from drills.cluster import Cluster
from drills.findings import Finding
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
