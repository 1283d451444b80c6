"""Latency when requests arrive at random times: go run build.go bench --open

Servers run on one processor, and the load generator on the others, so that neither takes time from the other one.

First a search finds the capacity of each contender: the highest rate, in requests/s at the times of a Poisson process, at
which it answers 97 % of the requests before the measurement is over. Then all contenders get parts (--percent, default: 50
and 80) of the capacity of stateful, so that their latencies can be compared, and of their own capacity, so that their
latencies at the same load can. Requests are sent whether or not earlier ones were answered, and latencies count from the
time at which a request was due.

What no backend can get below is the latency of one that does nothing, at the same rate, plus one run of ONNX Runtime, which
is measured without a server, in the same round, at the mean batch of stateful. With large models no server gets there,
because a request also waits for the run that is under way when it arrives. The contender floor, which runs the model and
does nothing else, shows by how much. So at 80 % and more the p99 of stateful must be at most 1.2 times the larger of both,
or the command fails. Of floor, the smaller p99 counts: at the same rate or at the same part of its own capacity.
"""

import argparse
import contextlib
import json
import os
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchclosed import failed
from benchcontenders import Contender
from benchraw import Raw
from benchreport import Samples, aligned, counted, cpu_per_request
from benchtarget import Target, in_turn, serve_all
from benchworkload import WORKLOADS, Setting, Workload

DEFAULT = ["stateful", "nothing", "floor"]  # contenders
PERCENT = [50, 80]
MOST = 1.2  # p99 over the larger bound
JUDGED = 80  # percent of the capacity, and more
RUN_SECONDS = 0.2  # of ONNX Runtime alone
IN_TIME = 0.97  # of the requests are answered in the measurement, at the capacity and below
SEARCHES = 6  # each halves the range of rates that may be the capacity
HIGHEST = 1.25  # times the requests/s of sequences that wait for their answers: the search begins below
BOUND = "nothing + run"


class Load(NamedTuple):
    """Which part of a capacity arrives: of that of stateful, or of the contender's own."""

    percent: int
    own: bool

    def __str__(self) -> str:
        return f"{self.percent} %{' of its own' if self.own else ''}"


class Outcome(NamedTuple):
    """What was measured of one model and number of sequences."""

    capacity: dict[str, float]  # requests/s, by contender
    samples: dict[tuple[Load, str], list[dict]]  # by load and contender, one of each round


def measure(contenders: list[Contender], options: argparse.Namespace) -> int:
    """Prints a table for each model and number of sequences, and says by the exit code whether the latencies are low enough."""
    outcomes, everything = [], []
    with apart() as processors:
        for name in options.model:
            workload = WORKLOADS[name]
            setting = Setting(options.max_batch, options.instances, max(options.sequences))
            with serve_all(contenders, workload, setting, processors) as targets:
                raw = Raw(workload)
                for sequences in options.sequences:
                    outcome = arrivals(workload, targets, raw, sequences, options)
                    outcomes.append(show(workload, sequences, outcome, options))
                    for (load, backend), results in outcome.samples.items():
                        every = {"model": name, "backend": backend, "sequences": sequences, **load._asdict()}
                        everything += [every | each for each in results]
    if options.json:
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    return int(not all(outcomes))


@contextlib.contextmanager
def apart() -> Iterator[list[int]]:
    """Gives one processor to the servers, which is returned, and the others to this process and the load generator."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        print("there is one processor: servers and load generator share it, and latencies are those of both")
        yield available
        return
    os.sched_setaffinity(0, available[1:])
    try:
        yield available[:1]
    finally:
        os.sched_setaffinity(0, available)


def arrivals(workload: Workload, targets: list[Target], raw: Raw, sequences: int, options: argparse.Namespace) -> Outcome:
    """Finds the capacities, then measures all rounds at parts of them."""
    outcome = Outcome({target.contender.name: capacity(target, sequences, options) for target in targets}, {})
    for round_number in range(1, options.rounds + 1):
        for percent in options.percent:
            for target in in_turn(targets, round_number):
                name = target.contender.name
                for own in [False] if name == "stateful" else [False, True]:
                    load = Load(percent, own)
                    rate = outcome.capacity[name if own else "stateful"] * percent / 100
                    result = target.load_again(sequences, options, rate=rate)
                    outcome.samples.setdefault((load, name), []).append(result)
                    print(f"  round {round_number}/{options.rounds}  {progress(name, load, result)}", flush=True)
            same = Load(percent, own=False)
            lanes = max(round(outcome.samples[same, "stateful"][-1]["mean_batch"]), 1)
            outcome.samples.setdefault((same, BOUND), []).append(bound(outcome.samples[same, "nothing"][-1], raw, lanes))
    return outcome


def capacity(target: Target, sequences: int, options: argparse.Namespace) -> float:
    """The highest rate of arrivals that the server keeps up with. A rate is too high if it does not in two attempts: other
    programs may disturb one."""
    closed = target.load_again(sequences, options)["requests_per_second"]
    low, high = 0.0, HIGHEST * closed
    for _ in range(SEARCHES):
        rate = (low + high) / 2
        if any(keeps_up(target.load_again(sequences, options, rate=rate)) for _ in range(2)):
            low = rate
        else:
            high = rate
    print(
        f"  {target.contender.name}: {low:,.0f} requests/s of random arrivals are answered in time; "
        f"{closed:,.0f} if each of {counted(sequences, 'sequence')} waits for its answers",
        flush=True,
    )
    return low


def keeps_up(result: dict) -> bool:
    return result["requests"] >= IN_TIME * result["sent"]


def bound(nothing: dict, raw: Raw, lanes: int) -> dict:
    """The latencies of the do-nothing backend, each with a run of so many lanes added."""
    run = raw.run_us(lanes, RUN_SECONDS)
    return {
        "p50_us": nothing["p50_us"] + run, "p99_us": nothing["p99_us"] + run, "run_us": run, "mean_batch": lanes,
        "errors": 0, "mismatches": 0,
    }  # fmt: skip


def progress(name: str, load: Load, result: dict) -> str:
    line = f"{str(load):<16}{name:<18}{result['requests_per_second']:>9,.0f} requests/s, "
    line += f"p50 {result['p50_us']:,.0f} µs, p99 {result['p99_us']:,.0f} µs"
    if result["errors"]:
        line += f"\n    FAILED: {result['errors']} errors: {result['texts'][0]}"
    return line


# The columns of the table: title, format, and where the figure is in a result; "-" where it has none.
COLUMNS: list[tuple[str, str, Callable[[dict], float | None]]] = [
    ("requests/s", ",.0f", lambda r: r.get("requests_per_second")),
    ("in time", ".0%", lambda r: min(r["requests"] / max(r["sent"], 1), 1) if "sent" in r else None),
    ("p50 µs", ",.0f", lambda r: r["p50_us"]),
    ("p99 µs", ",.0f", lambda r: r["p99_us"]),
    ("sent late, p99 µs", ",.0f", lambda r: r.get("late_p99_us")),
    ("mean batch", ".1f", lambda r: r["mean_batch"]),
    ("CPU µs/request", ".1f", lambda r: cpu_per_request(r) if "cpu_us_per_request" in r else None),
]


def show(workload: Workload, sequences: int, outcome: Outcome, options: argparse.Namespace) -> bool:
    """Prints the medians; returns whether they are as they should be."""
    samples = outcome.samples
    print(
        f"\n{workload.model}: {sequences} sequences, {counted(options.instances, 'instance')}, medians of "
        f"{counted(options.rounds, 'round')} of {options.seconds * workload.pace:g} s; loads are parts of the capacity of stateful"
    )
    print("capacity, requests/s: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in outcome.capacity.items()))
    rows = [["load", "backend", *(title for title, _, _ in COLUMNS), f"p99 / ({BOUND})", "p99 / floor"]]
    for (load, name), results in sorted(samples.items(), key=lambda item: item[0][0]):
        cells = [median_of(results, style, figure) for _, style, figure in COLUMNS]
        rows.append([str(load), name, *cells, *(over(samples, load, name, base) for base in (BOUND, "floor"))])
    print(aligned(rows))
    failures = ["requests failed, see above"] if failed(samples) else []
    for percent in options.percent:
        failures += judge(samples, Load(percent, own=False))
    for failure in failures:
        print(f"FAILED: {failure}")
    return not failures


def judge(samples: Samples, load: Load) -> list[str]:
    """Prints what is added to nothing, and the larger bound; returns what is wrong."""
    ours, simple = samples[load, "stateful"], samples[load, BOUND]
    run = statistics.median(result["run_us"] for result in simple)
    print(f"{load}: one run takes {run:,.0f} µs", end="")
    rate, in_time = (statistics.median(map(of, ours)) for of in (lambda r: r["requests_per_second"], keeps_up))
    if not in_time:
        print()
        return [f"at {load} only {rate:,.0f} requests/s were answered: the latencies do not count"]
    if load.percent < JUDGED:
        print()
        return []
    p99, simple, *floors = (
        statistics.median(result["p99_us"] for result in results)
        for results in (ours, simple, *(samples.get((each, "floor"), []) for each in (load, load._replace(own=True))))
        if results
    )
    limit = max(simple, min(floors, default=0))
    larger = BOUND if limit == simple else "floor"
    print(f"; the larger bound is that of {larger}: {limit:,.0f} µs; p99 is {p99 / limit:.2f} times that")
    return [f"p99 at {load} is {p99 / limit:.2f} times what it could be: want {MOST}"] if p99 > MOST * limit else []


def median_of(results: list[dict], style: str, figure: Callable[[dict], float | None]) -> str:
    values = [value for value in map(figure, results) if value is not None]
    return format(statistics.median(values), style) if values else "-"


def over(samples: Samples, load: Load, name: str, base: str) -> str:
    """The median of the rounds' ratios of p99 to that of another contender at the same load."""
    others = samples.get((load, base))
    if name in ("nothing", base, BOUND) or not others:
        return "-"
    return format(statistics.median(a["p99_us"] / b["p99_us"] for a, b in zip(samples[load, name], others)), ".2f")
