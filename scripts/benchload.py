"""How long a model with 200 MB of weights takes to load: go run build.go bench --loading

In each round, a server that runs already loads the model, which also loads the backend and ONNX Runtime, unloads it and loads
it again. Another server loads it without trial runs (verify: never). A Python program that has imported ONNX Runtime makes a
session of the same file, with the same options. The file is in the page cache.

The load when the backend is there, with the runs that show that requests of a batch do not influence each other, must take at
most 1.3 times as long as the session, or the command fails.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import onnxruntime

import benchweights
from benchreport import aligned, counted
from tritonserver import ServerError

MOST = 1.3  # times ONNX Runtime alone
UNLOAD_TIMEOUT = 60  # seconds
FIRST, LOAD, UNPROVED, SESSION = "first load, with the backend", "load", "first load, verify never", "session"

ALONE = """
import sys, time
import benchraw, onnxruntime
began = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], benchraw.one_thread(), ["CPUExecutionProvider"])
print(time.perf_counter() - began)
"""


def measure(folder: Path, options: argparse.Namespace) -> int:
    """Prints the medians, and says by the exit code whether the load is fast enough. The model is made in the folder."""
    file = folder / benchweights.NAME / "model.onnx"
    print(f"{file.name} of 200 MB, ONNX Runtime {onnxruntime.__version__} alone", flush=True)
    benchweights.write_model(file)
    file.read_bytes()  # into the page cache
    seconds: dict[str, list[float]] = {name: [] for name in (FIRST, LOAD, UNPROVED, SESSION)}
    for round_number in range(1, options.rounds + 1):
        with benchweights.serve("1 instance", benchweights.configuration(1), file) as served:
            seconds[FIRST].append(served.load_seconds)
            seconds[LOAD].append(load_again(served.server))
            trials = trial_runs(served.server.log_text())
        with benchweights.serve("1 instance", benchweights.configuration(1, verify="never"), file) as served:
            seconds[UNPROVED].append(served.load_seconds)
        seconds[SESSION].append(alone(file))
        line = "".join(f"  {name} {values[-1]:.2f} s" for name, values in seconds.items())
        print(f"  round {round_number}/{options.rounds}{line}", flush=True)
    print(f"\nmedians of {counted(options.rounds, 'round')}; a load makes {counted(trials, 'trial run')}")
    rows = [["", "s", "over the session"]]
    for name, values in seconds.items():
        rows.append([name, f"{statistics.median(values):.2f}", f"{ratio(values, seconds[SESSION]):.2f}"])
    print(aligned(rows))
    if options.json:
        options.json.write_text(json.dumps(seconds, indent=2) + "\n")
    over = ratio(seconds[LOAD], seconds[SESSION])
    if over > MOST:
        print(f"FAILED: the load takes {over:.2f} times as long as the session: want {MOST}")
    return int(over > MOST)


def trial_runs(log: str) -> int:
    """How many runs the first load of the log has made to prove the batch axes."""
    found = re.search(r'"batch axes .*?runs=(\d+)', log)
    if found is None:
        raise ServerError(f"the log says nothing of trial runs:\n{log}")
    return int(found[1])


def load_again(server) -> float:
    """Unloads the model of a server, waits until it is gone, and returns how long it takes to load."""
    server.unload(benchweights.NAME)
    deadline = time.monotonic() + UNLOAD_TIMEOUT
    while server.request("v2/repository/index", {})[0].get("state") != "UNAVAILABLE" and time.monotonic() < deadline:
        time.sleep(0.05)
    began = time.monotonic()
    server.load(benchweights.NAME)
    return time.monotonic() - began


def alone(file: Path) -> float:
    """The seconds that ONNX Runtime takes to make a session, in a process of its own."""
    command = [sys.executable, "-c", ALONE, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent)
    return float(done.stdout)


def ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(value / other for value, other in zip(values, others))
