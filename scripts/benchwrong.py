"""What one client who always sends a value that the model refuses costs the others: go run build.go bench --wrong

A real tritonserver serves the model tokens (internal/bench/models), whose vocabulary ends below what that client sends.
Loads of the others are measured in turns: alone, with one more client like them, and with the one that sends wrong
values, in one sequence (continues) or in a new one with each request (restarts).
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
from collections.abc import Iterator

from benchreport import cpu_per_request

WRONG = 99  # a token that the model does not have
FIRST_ID = 1_000_000  # of the one more client
WANTED = 0.8  # of the throughput alone

# What the one more client sends, by the load generator's options; None: there is none.
LOADS: dict[str, list[str] | None] = {
    "alone": None,
    "with one more": [],
    "with one that continues": ["-wrong", str(WRONG), "-wrong-from", "1"],
    "with one that restarts": ["-wrong", str(WRONG), "-wrong-from", "0"],
}


def measure(target, options: argparse.Namespace) -> int:
    """Measures all loads of a server, a benchtarget.Target, in turns, prints what the others have left of their
    throughput, and says by the exit code whether that is enough."""
    rounds = options.rounds
    rates: dict[str, list[float]] = {name: [] for name in LOADS}
    cpu: dict[str, list[float]] = {name: [] for name in LOADS}
    failed = False
    for round_number in range(1, rounds + 1):
        for name, extra in LOADS.items():
            with one_more(target.command(options), extra):
                result = target.load(options.sequences[0], options)
            rates[name].append(result["requests_per_second"])
            cpu[name].append(cpu_per_request(result))
            failed |= result["errors"] > 0
            shown = f"{result['requests_per_second']:>9,.0f} requests/s, {cpu_per_request(result):>7.0f} µs/request of CPU time"
            print(f"  round {round_number}/{rounds}  {name:<27}{shown}", flush=True)
            if result["errors"]:
                print(f"    FAILED: {result['errors']} errors: {result['texts'][0]}")
    print(
        f"\nmedians of {rounds} rounds: requests/s of the others, CPU µs/request, requests/s over those alone in the same round"
    )
    worst = 1.0
    for name, values in rates.items():
        ratio = statistics.median(value / alone for value, alone in zip(values, rates["alone"]))
        worst = min(worst, ratio)
        print(f"{name:<27}{statistics.median(values):>9,.0f}{statistics.median(cpu[name]):>7.0f}{ratio:>8.2f}")
    if failed:
        print("FAILED: requests of the others failed")
    elif worst < WANTED:
        print(f"FAILED: they keep {worst:.0%} of their throughput: want {WANTED:.0%}")
    return int(failed or worst < WANTED)


@contextlib.contextmanager
def one_more(command: list[str], extra: list[str] | None) -> Iterator[None]:
    """Runs one more client by the load generator, without end; it ends with the context."""
    if extra is None:
        yield
        return
    one = ["-sequences", "1", "-streams", "1", "-first-id", str(FIRST_ID), "-duration", "1h"]
    with subprocess.Popen([*command, *one, *extra], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as client:
        try:
            yield
            if client.poll() is not None:
                raise RuntimeError(f"the one more client ended before the others: {client.stderr.read()}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(client.pid, signal.SIGINT)
