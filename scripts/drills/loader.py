"""Load from the Go program that benchmarks use: exact times, and little CPU of its own."""

import json
import os
import subprocess
from dataclasses import dataclass

import psutil

from tritonserver import ROOT, TritonServer

LOADGEN = ROOT / "build" / "bench" / "loadgen"


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


def load(server: TritonServer, model: str, *, seconds: float, sequences: int, rate: float = 0) -> Measured:
    """Loads one of the drills' models. The sequences begin before the measurement and end after it.

    If the server has processors of its own, the load comes from the others.
    rate is requests a second at random times, whether or not earlier ones were answered; 0: each after an answer.
    """
    inputs = json.dumps([{"name": "X", "datatype": "INT64", "shape": [1, 2]}])
    command = [
        str(LOADGEN), "-url", server.grpc_url, "-model", model, "-inputs", inputs, "-sequences", str(sequences),
        "-steps", "1000000", "-duration", f"{seconds}s", "-warmup", "0.5s", "-rate", str(rate),
    ]  # fmt: skip
    if server.processors:
        others = os.sched_getaffinity(0) - set(server.processors)
        command = ["taskset", "--cpu-list", ",".join(map(str, others)), *command]
    process = psutil.Process(server.pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loadgen:
        try:
            for _ in loadgen.stdout:  # the measurement begins
                before = cpu_seconds(process)
                break
            for _ in loadgen.stdout:  # and ends
                after = cpu_seconds(process)
                break
            result = json.loads(loadgen.stdout.read())
        except BaseException:
            loadgen.kill()
            raise
    requests = result["requests"]
    return Measured(
        result["p50_us"] / 1e3, result["p99_us"] / 1e3, (after - before) / max(1, requests) * 1e6, requests, result["errors"]
    )


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
