"""What sequences cost that are open and idle, and what it costs to serve some of many: go run build.go bench --idle

A server is loaded for a moment with few sequences, which end. Then as many sequences as --live says are opened, and the
server's memory before is taken from that after. Then requests come from any of them, as many in flight as --sequences says.
Each figure is from a server of its own, because memory differs from start to start.

What one more sequence takes is the difference between the most and the fewest live sequences, divided by their number. The
rest does not grow with the sequences: memory comes in pages of 2 MiB and heaps grow in steps. The contender nothing keeps no
states: what it takes for one more sequence is Triton's own. Beyond that and the bytes of its states, a sequence of this
backend may take 200 bytes, or the command fails.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from benchcontenders import Contender
from benchreport import aligned, counted, cpu_per_request
from benchtarget import SETTLED, serve
from benchworkload import WORKLOADS, Setting, Workload

DEFAULT = ["stateful", "nothing"]  # contenders
LIVE = [1_000, 10_000]
MODELS = ["accumulate_fp32", "lstm2x512", "silero_vad"]
MOST_BYTES = 200  # of an idle sequence, beyond its states and what the server needs
ROOM = 0.5  # of the free memory is used at most

Samples = dict[tuple[int, str], list[dict]]  # by live sequences and contender


def measure(contenders: list[Contender], options: argparse.Namespace) -> int:
    """Prints a table for each model, and says by the exit code whether idle sequences are as small as they should be."""
    outcomes, everything = [], []
    for name in options.model:
        samples = rounds(WORKLOADS[name], contenders, options)
        outcomes.append(show(WORKLOADS[name], samples, options))
        for (_, backend), results in samples.items():
            everything += [{"model": name, "backend": backend, **result} for result in results]
    if options.json:
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    return int(not all(outcomes))


def rounds(workload: Workload, contenders: list[Contender], options: argparse.Namespace) -> Samples:
    samples: Samples = {}
    for live in options.live:
        needed = live * workload.state_bytes()
        if needed > ROOM * psutil.virtual_memory().available:
            print(f"{workload.model}: {live:,} sequences are left out, their states take {needed / 2**30:.1f} GiB")
            continue
        for round_number in range(1, options.rounds + 1):
            for contender in contenders:
                result = idle(workload, contender, live, options)
                samples.setdefault((live, contender.name), []).append(result)
                print(f"  round {round_number}/{options.rounds}  {progress(contender.name, result)}", flush=True)
    return samples


def idle(workload: Workload, contender: Contender, live: int, options: argparse.Namespace) -> dict:
    """Starts a server and measures it once."""
    active = min(options.sequences[0], live)
    opened = live + active  # the sequences of the warm-up have left room for so many
    quick = argparse.Namespace(**vars(options) | {"steps": 10})  # so that sequences also end and start
    with serve(contender, workload, Setting(options.max_batch, options.instances, opened)) as target:
        target.load(active, quick)
        time.sleep(SETTLED)
        before = target.read().rss
        result = target.load(opened, options, active=active)
    return result | {"live": live, "idle_bytes": result["opened_rss_bytes"] - before}


def progress(name: str, result: dict) -> str:
    line = f"{name:<18}{result['live']:>7,} live: {result['idle_bytes'] / result['live']:>9,.0f} bytes each, {result['requests_per_second']:>9,.0f} requests/s"
    if result["errors"] or result["mismatches"]:
        line += f"\n    FAILED: {result['errors']} errors, {result['mismatches']} wrong answers: {result['texts'][0]}"
    return line


# More columns of the table: title, format, and where the figure is in a result.
COLUMNS: list[tuple[str, str, Callable[[dict], float]]] = [
    ("requests/s", ",.0f", lambda r: r["requests_per_second"]),
    ("p99 µs", ",.0f", lambda r: r["p99_us"]),
    ("mean batch", ".1f", lambda r: r["mean_batch"]),
    ("CPU µs/request", ".1f", cpu_per_request),
]


def show(workload: Workload, samples: Samples, options: argparse.Namespace) -> bool:
    """Prints the medians; returns whether they are as they should be."""
    states = workload.state_bytes()
    print(
        f"\n{workload.model}: states of {states:,} bytes, {options.sequences[0]} requests in flight, "
        f"{counted(options.instances, 'instance')}, medians of {counted(options.rounds, 'server')}"
    )
    rows = [["live", "backend", "bytes each", *(title for title, _, _ in COLUMNS)]]
    failures = []
    for (live, name), results in samples.items():
        figures = [format(statistics.median(map(figure, results)), style) for _, style, figure in COLUMNS]
        rows.append([f"{live:,}", name, f"{opened(results) / live:,.0f}", *figures])
        if any(result["errors"] or result["mismatches"] for result in results):
            failures.append("requests failed or answers were wrong, see above")
    print(aligned(rows))
    for name, more in growth(samples).items():
        line = f"{name}: one more sequence takes {more.each:,.0f} bytes, and what does not grow with them {more.fixed / 1000:,.0f} kB"
        if name.startswith(("nothing", "floor")):
            print(line)
            continue
        own = more.each - states - growth(samples).get("nothing", Growth(0, 0)).each
        print(f"{line}; less its states and what it takes with nothing: {own:,.0f} bytes")
        if name == "stateful" and own > MOST_BYTES:
            failures.append(f"one more sequence takes {own:,.0f} bytes of its own: want {MOST_BYTES}")
    for failure in failures:
        print(f"FAILED: {failure}")
    return not failures


def opened(results: list[dict]) -> float:
    """The bytes by which opening all sequences makes the server larger."""
    return statistics.median(result["idle_bytes"] for result in results)


class Growth(NamedTuple):
    """The bytes that a server takes for one more sequence, and for any number of them."""

    each: float
    fixed: float


def growth(samples: Samples) -> dict[str, Growth]:
    """What sequences take, by contender. With one number of live sequences, nothing is known to be fixed."""
    found = {}
    for name in dict.fromkeys(name for _, name in samples):
        sizes = {live: opened(results) for (live, other), results in samples.items() if other == name}
        few, many = min(sizes), max(sizes)
        each = (sizes[many] - sizes[few]) / (many - few) if many > few else sizes[many] / many
        found[name] = Growth(each, sizes[few] - few * each)
    return found
