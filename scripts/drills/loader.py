"""Load from the Go program that benchmarks use: exact times, and little CPU of its own."""

import contextlib
import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tritonserver import ROOT, TritonServer

LOADGEN = ROOT / "build" / "bench" / "loadgen"

# No ID is used twice: a sequence that is begun again is another matter.
_first_ids = itertools.count(1, 1_000_000)


def build() -> None:
    subprocess.run(["go", "-C", str(ROOT / "internal" / "bench"), "build", "-o", str(LOADGEN), "./loadgen"], check=True)


@dataclass(frozen=True)
class Measured:
    """One run: latencies in milliseconds, and server CPU in microseconds a request."""

    p50: float
    p99: float
    cpu: float
    requests: int
    errors: int


def load(server: TritonServer, model: str, *, seconds: float, sequences: int) -> Measured:
    """Loads one of the drills' models, with one request of each sequence at a time. The sequences begin before the measurement
    and end after it."""
    process = psutil.Process(server.pid)
    with _loadgen(server, model, seconds, sequences) as loadgen:
        for _ in loadgen.stdout:  # the measurement begins
            before = cpu_seconds(process)
            break
        for _ in loadgen.stdout:  # and ends
            after = cpu_seconds(process)
            break
        result = json.loads(loadgen.stdout.read())
    requests = result["requests"]
    return Measured(
        result["p50_us"] / 1e3, result["p99_us"] / 1e3, (after - before) / max(1, requests) * 1e6, requests, result["errors"]
    )


@dataclass(frozen=True)
class Samples:
    """Of each request, the time when it began, as time.time() has it, and its latency, in seconds."""

    began: np.ndarray
    took: np.ndarray
    errors: int

    def between(self, first: float, last: float) -> np.ndarray:
        """The latencies of the requests that began then."""
        return self.took[(self.began >= first) & (self.began < last)]


@contextlib.contextmanager
def loaded(
    server: TritonServer, model: str, *, seconds: float, sequences: int, rate: float
) -> Iterator[Callable[[], Samples]]:  # fmt: skip
    """Loads a model while the with statement runs, which may take that long, and a function that waits for what was measured.

    rate is requests a second, at random times whether or not earlier ones were answered.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples"
        with _loadgen(server, model, seconds, sequences, "-rate", str(rate), "-samples", str(file)) as loadgen:
            loadgen.stdout.readline()  # the measurement begins

            def samples() -> Samples:
                said = loadgen.stdout.read().splitlines()
                began, took = np.loadtxt(file, np.int64, ndmin=2).T
                return Samples(began / 1e9, took / 1e9, json.loads(said[-1])["errors"])

            yield samples


@contextlib.contextmanager
def _loadgen(server: TritonServer, model: str, seconds: float, sequences: int, *options: str) -> Iterator[subprocess.Popen]:
    inputs = json.dumps([{"name": "X", "datatype": "INT64", "shape": [1, 2]}])
    command = [
        str(LOADGEN), "-url", server.grpc_url, "-model", model, "-inputs", inputs, "-sequences", str(sequences),
        "-steps", "1000000", "-duration", f"{seconds}s", "-warmup", "0.5s", "-first-id", str(next(_first_ids)), *options,
    ]  # fmt: skip
    if server.processors:  # the load comes from the others
        others = os.sched_getaffinity(0) - set(server.processors)
        command = ["taskset", "--cpu-list", ",".join(map(str, others)), *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loadgen:
        try:
            yield loadgen
        except BaseException:
            loadgen.kill()
            raise


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
