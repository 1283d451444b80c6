"""Latency when requests arrive at random times: go run build.go bench --open

First a closed load finds the capacity of this backend: its requests/s with --sequences sequences, one request in flight
each. Then every contender gets as many requests per second as a part of that (--percent, default: 50 and 80), at the times
of a Poisson process, whether or not earlier ones were answered. Latencies count from these times.

What no backend can get below is the latency of one that does nothing, at the same rate, plus one run of ONNX Runtime. The
run is measured without a server, in the same round, at the mean batch of this backend. At 80 % and more its p99 must be at
most 1.2 times that, or the command fails. The contender floor runs the model in the server, so there requests also wait
for the run before theirs.
"""

import argparse
import json
import statistics
from collections.abc import Callable

from benchclosed import failed
from benchcontenders import Contender
from benchraw import Raw
from benchreport import Samples, aligned, counted, cpu_per_request
from benchtarget import Target, in_turn, serve_all
from benchworkload import WORKLOADS, Setting, Workload

DEFAULT = ["stateful", "nothing", "floor"]  # contenders
PERCENT = [50, 80]
MOST = 1.2  # p99 over that of nothing and one run
JUDGED = 80  # percent of the capacity, and more
CAPACITY_ROUNDS = 3
RUN_SECONDS = 0.2  # of ONNX Runtime alone
KEPT_UP = 0.95  # of the requests must be answered in the time
BOUND = "nothing + run"


def measure(contenders: list[Contender], options: argparse.Namespace) -> int:
    """Prints a table for each model and number of sequences, and says by the exit code whether the latencies are low enough."""
    outcomes, everything = [], []
    for name in options.model:
        workload = WORKLOADS[name]
        setting = Setting(options.max_batch, options.instances, max(options.sequences))
        with serve_all(contenders, workload, setting) as targets:
            raw = Raw(workload)
            for sequences in options.sequences:
                capacity, samples = arrivals(workload, targets, raw, sequences, options)
                outcomes.append(show(workload, sequences, capacity, samples, options))
                for (percent, backend), results in samples.items():
                    everything += [{"model": name, "backend": backend, "percent": percent, **each} for each in results]
    if options.json:
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    return int(not all(outcomes))


def arrivals(
    workload: Workload, targets: list[Target], raw: Raw, sequences: int, options: argparse.Namespace
) -> tuple[float, Samples]:
    """Measures the capacity, then all rounds at parts of it. The samples are by percent and contender."""
    ours = next(target for target in targets if target.contender.name == "stateful")
    closed = [ours.load_again(sequences, options) for _ in range(CAPACITY_ROUNDS)]
    capacity = statistics.median(result["requests_per_second"] for result in closed)
    print(f"  capacity with {sequences} sequences: {capacity:,.0f} requests/s", flush=True)
    samples: Samples = {(0, "capacity"): closed}
    for round_number in range(1, options.rounds + 1):
        for percent in options.percent:
            for target in in_turn(targets, round_number):
                result = target.load_again(sequences, options, rate=capacity * percent / 100)
                samples.setdefault((percent, target.contender.name), []).append(result)
                print(
                    f"  round {round_number}/{options.rounds}  {percent} %  {progress(target.contender.name, result)}", flush=True
                )
            lanes = max(round(samples[percent, "stateful"][-1]["mean_batch"]), 1)
            samples.setdefault((percent, BOUND), []).append(bound(samples[percent, "nothing"][-1], raw, lanes))
    return capacity, samples


def bound(nothing: dict, raw: Raw, lanes: int) -> dict:
    """The latencies of the do-nothing backend, each with a run of so many lanes added."""
    run = raw.run_us(lanes, RUN_SECONDS)
    return {
        "p50_us": nothing["p50_us"] + run, "p99_us": nothing["p99_us"] + run, "run_us": run, "mean_batch": lanes,
        "errors": 0, "mismatches": 0,
    }  # fmt: skip


def progress(name: str, result: dict) -> str:
    line = f"{name:<18}{result['requests_per_second']:>9,.0f} requests/s, p50 {result['p50_us']:,.0f} µs, p99 {result['p99_us']:,.0f} µs"
    if result["errors"]:
        line += f"\n    FAILED: {result['errors']} errors: {result['texts'][0]}"
    return line


# The columns of the table: title, format, and where the figure is in a result; "-" where it has none.
COLUMNS: list[tuple[str, str, Callable[[dict], float | None]]] = [
    ("requests/s", ",.0f", lambda r: r.get("requests_per_second")),
    ("p50 µs", ",.0f", lambda r: r["p50_us"]),
    ("p99 µs", ",.0f", lambda r: r["p99_us"]),
    ("sent late, p99 µs", ",.0f", lambda r: r.get("late_p99_us")),
    ("mean batch", ".1f", lambda r: r["mean_batch"]),
    ("CPU µs/request", ".1f", lambda r: cpu_per_request(r) if "cpu_us_per_request" in r else None),
]


def show(workload: Workload, sequences: int, capacity: float, samples: Samples, options: argparse.Namespace) -> bool:
    """Prints the medians; returns whether they are as they should be."""
    print(
        f"\n{workload.model}: {sequences} sequences, arrivals at parts of {capacity:,.0f} requests/s, "
        f"{counted(options.instances, 'instance')}, medians of {counted(options.rounds, 'round')} of "
        f"{options.seconds * workload.pace:g} s"
    )
    rows = [["load", "backend", *(title for title, _, _ in COLUMNS), f"p99 / ({BOUND})", "p99 / floor"]]
    failures = ["requests failed, see above"] if failed(samples) else []
    for (percent, name), results in samples.items():
        if percent == 0:
            continue
        cells = [median_of(results, style, figure) for _, style, figure in COLUMNS]
        over = ratio(samples, percent, name, BOUND)
        rows.append([f"{percent} %", name, *cells, *(shown(each) for each in (over, ratio(samples, percent, name, "floor")))])
        if name == "stateful" and percent >= JUDGED and over > MOST:
            failures.append(f"p99 at {percent} % is {over:.2f} times that of the do-nothing backend plus one run: want {MOST}")
        if name == "stateful" and rate(results) < KEPT_UP * capacity * percent / 100:
            failures.append(f"at {percent} % only {rate(results):,.0f} requests/s were answered: the latencies do not count")
    print(aligned(rows))
    runs = {percent: results for (percent, name), results in samples.items() if name == BOUND}
    for percent, results in runs.items():
        run = statistics.median(result["run_us"] for result in results)
        print(f"one run at {percent} %: {run:,.0f} µs")
    for failure in failures:
        print(f"FAILED: {failure}")
    return not failures


def rate(results: list[dict]) -> float:
    return statistics.median(result["requests_per_second"] for result in results)


def median_of(results: list[dict], style: str, figure: Callable[[dict], float | None]) -> str:
    values = [value for value in map(figure, results) if value is not None]
    return format(statistics.median(values), style) if values else "-"


def ratio(samples: Samples, percent: int, name: str, base: str) -> float:
    """The median of the rounds' ratios of p99; 0 if it says nothing."""
    if name in ("nothing", base) or name == BOUND or (percent, base) not in samples:
        return 0
    pairs = zip(samples[percent, name], samples[percent, base])
    return statistics.median(a["p99_us"] / b["p99_us"] for a, b in pairs)


def shown(value: float) -> str:
    return format(value, ".2f") if value else "-"
