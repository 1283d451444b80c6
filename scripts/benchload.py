"""How long a model with 200 MB of weights takes to load: go run build.go bench --loading

In each round, a server that runs already loads the model (which loads the backend, too), unloads it and loads it again, and
a Python program that has imported ONNX Runtime makes a session of the same file, with the same options. The file is in the
page cache. The load must take at most 1.3 times as long as the session, or the command fails.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import onnxruntime

import benchweights
from benchreport import aligned, counted

MOST = 1.3  # times the session alone
UNLOAD_TIMEOUT = 60  # seconds
FIRST, AGAIN, SESSION = "load", "load again", "session"

ALONE = """
import sys, time
import benchraw, onnxruntime
began = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], benchraw.one_thread(), ["CPUExecutionProvider"])
print(time.perf_counter() - began)
"""


def measure(folder: Path, options: argparse.Namespace) -> int:
    """Prints the medians, and says by the exit code whether the load is fast enough. The model is made in the folder."""
    file = folder / benchweights.NAME / "model.onnx"
    print(f"{file.name} of 200 MB, ONNX Runtime {onnxruntime.__version__} alone", flush=True)
    benchweights.write_model(file)
    file.read_bytes()  # into the page cache
    seconds: dict[str, list[float]] = {FIRST: [], AGAIN: [], SESSION: []}
    for round_number in range(1, options.rounds + 1):
        with benchweights.serve("1 instance", benchweights.configuration(1), file) as served:
            seconds[FIRST].append(served.load_seconds)
            seconds[AGAIN].append(load_again(served.server))
        seconds[SESSION].append(session(file))
        line = "".join(f"  {name} {values[-1]:.2f} s" for name, values in seconds.items())
        print(f"  round {round_number}/{options.rounds}{line}", flush=True)
    ratios = {name: ratio(values, seconds[SESSION]) for name, values in seconds.items()}
    print(f"\nmedians of {counted(options.rounds, 'round')}")
    rows = [[name, f"{statistics.median(values):.2f}", f"{ratios[name]:.2f}"] for name, values in seconds.items()]
    print(aligned([["", "s", "over the session alone"], *rows]))
    if options.json:
        options.json.write_text(json.dumps(seconds, indent=2) + "\n")
    if ratios[FIRST] > MOST:
        print(f"FAILED: the load takes {ratios[FIRST]:.2f} times as long as a session: want {MOST}")
    return int(ratios[FIRST] > MOST)


def load_again(server) -> float:
    """Unloads the model of a server, waits until it is gone, and returns how long it takes to load."""
    server.unload(benchweights.NAME)
    deadline = time.monotonic() + UNLOAD_TIMEOUT
    while server.request("v2/repository/index", {})[0].get("state") != "UNAVAILABLE" and time.monotonic() < deadline:
        time.sleep(0.05)
    began = time.monotonic()
    server.load(benchweights.NAME)
    return time.monotonic() - began


def session(file: Path) -> float:
    """The seconds that ONNX Runtime takes for a session, in a process of its own."""
    command = [sys.executable, "-c", ALONE, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent)
    return float(done.stdout)


def ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(value / other for value, other in zip(values, others))
