"""Latency when requests arrive at random times: go run build.go bench --open

Servers run on one processor, and the load generator on the others, so that neither takes time from the other one.

First searches find the capacity of each contender, of which the median counts: the highest rate, in requests/s at the times of a
Poisson process, at which it answers 97 % of the requests before the measurement is over. Then each contender gets parts of its own capacity
(--percent, default: 50 and 80). Requests are sent whether or not earlier ones were answered, and latencies count from the
time at which a request was due.

At 80 % and more, the p99 of stateful must be at most 1.2 times that of the backend that does nothing, at the same part of its
own capacity, plus one run, or the command fails. The run is that of ONNX Runtime without a server, in the same round, with as
many lanes as the batch that a request of stateful is in has on average. (A batch of 9 and one of 1 have 5 requests on average,
but a request is in one of 8.2.) The contender floor, which runs the model and does nothing else, shows what is possible with
the model.
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
MOST = 1.2  # p99 over that of nothing plus a run
JUDGED = 80  # percent of the capacity, and more
RUN_SECONDS = 0.2  # of ONNX Runtime alone
IN_TIME = 0.97  # of the requests are answered in the measurement, at the capacity and below
SEARCHES = 3  # for the capacity, of which the median counts
HALVINGS = 6  # of the range of rates that may be the capacity
HIGHEST = 1.25  # times the requests/s of sequences that wait for their answers: the search begins below
BOUND = "nothing + run"


class Outcome(NamedTuple):
    """What was measured of one model and number of sequences."""

    capacity: dict[str, float]  # requests/s, by contender
    samples: dict[tuple[int, str], list[dict]]  # by percent of the capacity and contender, one of each round


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
                    for (percent, backend), results in outcome.samples.items():
                        every = {"model": name, "backend": backend, "sequences": sequences, "percent": percent}
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
                result = target.load_again(sequences, options, rate=outcome.capacity[name] * percent / 100)
                outcome.samples.setdefault((percent, name), []).append(result)
                print(f"  round {round_number}/{options.rounds}  {progress(name, percent, result)}", flush=True)
            ours, nothing = (outcome.samples[percent, name][-1] for name in ("stateful", "nothing"))
            outcome.samples.setdefault((percent, BOUND), []).append(bound(nothing, raw, round(ours["batch_of_request"])))
    return outcome


def capacity(target: Target, sequences: int, options: argparse.Namespace) -> float:
    """The highest rate of arrivals that the server keeps up with: the median of several searches, which differ by a tenth."""
    closed = target.load_again(sequences, options)["requests_per_second"]
    found = sorted(search(target, sequences, options, HIGHEST * closed) for _ in range(SEARCHES))
    print(
        f"  {target.contender.name}: {statistics.median(found):,.0f} requests/s of random arrivals are answered in time "
        f"({found[0]:,.0f} to {found[-1]:,.0f}); "
        f"{closed:,.0f} if each of {counted(sequences, 'sequence')} waits for its answers",
        flush=True,
    )
    return statistics.median(found)


def search(target: Target, sequences: int, options: argparse.Namespace, high: float) -> float:
    """The highest rate below another one that the server keeps up with. A rate is too high if it does not in two attempts:
    other programs may disturb one."""
    low = 0.0
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        if any(keeps_up(target.load_again(sequences, options, rate=rate)) for _ in range(2)):
            low = rate
        else:
            high = rate
    return low


def keeps_up(result: dict) -> bool:
    return result["requests"] >= IN_TIME * result["sent"]


def bound(nothing: dict, raw: Raw, lanes: int) -> dict:
    """The latencies of the do-nothing backend, each with a run of so many lanes added."""
    run = raw.run_us(max(lanes, 1), RUN_SECONDS)
    return {
        "p50_us": nothing["p50_us"] + run, "p99_us": nothing["p99_us"] + run, "run_us": run, "batch_of_request": lanes,
        "errors": 0, "mismatches": 0,
    }  # fmt: skip


def progress(name: str, percent: int, result: dict) -> str:
    line = f"{percent} %  {name:<18}{result['requests_per_second']:>9,.0f} requests/s, "
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
    ("batch of a request", ".1f", lambda r: r["batch_of_request"]),
    ("CPU µs/request", ".1f", lambda r: cpu_per_request(r) if "cpu_us_per_request" in r else None),
]


def show(workload: Workload, sequences: int, outcome: Outcome, options: argparse.Namespace) -> bool:
    """Prints the medians; returns whether they are as they should be."""
    samples = outcome.samples
    print(
        f"\n{workload.model}: {sequences} sequences, {counted(options.instances, 'instance')}, medians of "
        f"{counted(options.rounds, 'round')} of {options.seconds * workload.pace:g} s; loads are parts of each one's own capacity"
    )
    print("capacity, requests/s: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in outcome.capacity.items()))
    rows = [["load", "backend", *(title for title, _, _ in COLUMNS), f"p99 / ({BOUND})"]]
    for (percent, name), results in sorted(samples.items(), key=lambda item: item[0][0]):
        cells = [median_of(results, style, figure) for _, style, figure in COLUMNS]
        rows.append([f"{percent} %", name, *cells, "-" if name in ("nothing", BOUND) else f"{over(samples, percent, name):.2f}"])
    print(aligned(rows))
    failures = ["requests failed, see above"] if failed(samples) else []
    for percent in options.percent:
        failures += judge(samples, percent)
    for failure in failures:
        print(f"FAILED: {failure}")
    return not failures


def judge(samples: Samples, percent: int) -> list[str]:
    """Prints what is added to nothing, and the ratio to it; returns what is wrong."""
    ours = samples[percent, "stateful"]
    run = statistics.median(result["run_us"] for result in samples[percent, BOUND])
    ratio = over(samples, percent, "stateful")
    print(f"{percent} %: one run takes {run:,.0f} µs; p99 is {ratio:.2f} times that of {BOUND}")
    rate, in_time = (statistics.median(map(of, ours)) for of in (lambda r: r["requests_per_second"], keeps_up))
    if not in_time:
        return [f"at {percent} % only {rate:,.0f} requests/s were answered: the latencies do not count"]
    if percent >= JUDGED and ratio > MOST:
        return [f"p99 at {percent} % is {ratio:.2f} times that of {BOUND}: want {MOST}"]
    return []


def median_of(results: list[dict], style: str, figure: Callable[[dict], float | None]) -> str:
    values = [value for value in map(figure, results) if value is not None]
    return format(statistics.median(values), style) if values else "-"


def over(samples: Samples, percent: int, name: str) -> float:
    """The median p99 of a contender over that of nothing plus a run."""
    p99, least = (statistics.median(result["p99_us"] for result in samples[percent, each]) for each in (name, BOUND))
    return p99 / least
