"""What the schedulers oldest, direct and free cost, and how fair they are: go run build.go bench --schedulers

The same model under each scheduler, in a server of its own, loaded in turns; one request of each sequence is in flight. The
table is that of docs/schedulers.md. Fair is the slowest sequence's answers over the median, and Jain's index of all.

Two instances cost more than one with any backend, because their batches are smaller: the do-nothing backend shows what of it
is the server's.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchbuild import OTHERS
from benchclosed import failed, progress
from benchcontenders import Contender, prepare_nothing, prepare_stateful
from benchreport import Samples, cpu_per_request
from benchtarget import rounds
from benchworkload import WORKLOADS, ModelConfig, Setting, Workload
from tritonserver import BACKENDS

IDLE_MS = 600_000


def prepare_direct(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """A batch slot for each sequence, in the place of candidates."""
    config.max_batch_size = max(config.max_batch_size, setting.sequences)
    config.sequence_batching.direct.SetInParent()
    prepare_stateful(workload, config, folder, setting)


def prepare_free(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """Parameters say what sequence_batching said."""
    slots = config.sequence_batching.oldest.max_candidate_sequences
    config.dynamic_batching.SetInParent()  # ends sequence_batching, of which a model has one
    given = {"sequences": "free", "max_sequences": str(slots), "sequence_idle_ms": str(IDLE_MS)}
    if workload.layout.reset:
        given["derived_inputs"] = f"{workload.layout.reset} = start"
    for name, value in given.items():
        config.parameters[name].string_value = value
    prepare_stateful(workload, config, folder, setting)


def prepare_batched(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """The do-nothing backend under the scheduler of free sequences."""
    config.dynamic_batching.SetInParent()
    config.parameters.clear()
    prepare_nothing(workload, config, folder, setting)


@dataclass(frozen=True)
class Two:
    """A way to prepare a model, with two instances."""

    of: Callable[[Workload, ModelConfig, Path, Setting], None]

    def __call__(self, workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
        config.instance_group[0].count = 2
        self.of(workload, config, folder, setting)


TWO = ", 2 instances"

SCHEDULERS = [
    Contender("oldest", BACKENDS, prepare_stateful),
    Contender("direct", BACKENDS, prepare_direct),
    Contender("free", BACKENDS, prepare_free),
    Contender("free" + TWO, BACKENDS, Two(prepare_free)),
    Contender("nothing", OTHERS, prepare_batched, computes=False),
    Contender("nothing" + TWO, OTHERS, Two(prepare_batched), computes=False),
]

# The rows of the table for a number of sequences: title, and the figure of a round as text.
ROWS: list[tuple[str, str, Callable[[dict], float]]] = [
    ("µs a request", ".0f", cpu_per_request),
    ("requests in the batch of a request", ".0f", lambda r: r["batch_of_request"]),
    ("p50 in ms", ".1f", lambda r: r["p50_us"] / 1e3),
    ("p99 in ms", ".1f", lambda r: r["p99_us"] / 1e3),
    ("slowest sequence / median", ".2f", lambda r: r["slowest_over_median"]),
    ("Jain's index", ".4f", lambda r: r["jain_index"]),
]


def measure(options: argparse.Namespace) -> int:
    """Prints the table, and says by the exit code whether all requests were answered, and right."""
    samples: Samples = {}
    workload = WORKLOADS["accumulate_fp32"]
    for sequences in options.sequences:
        for name, targets in rounds(SCHEDULERS, workload, Setting(options.max_batch, 1, sequences), options):
            for target in targets:
                result = target.load_again(sequences, options)
                samples.setdefault((sequences, target.contender.name), []).append(result)
                print(f"  round {name}  {progress(target.contender.name, result)}", flush=True)
    print(
        f"\nmedians of {options.starts * options.rounds} rounds of {options.seconds:g} s, and in brackets the least and the greatest\n"
    )
    print(table(samples, options.sequences))
    for count in options.sequences:
        print(two_over_one(samples, count))
    if options.json:
        options.json.write_text(
            json.dumps([{"scheduler": s, **r} for (_, s), rs in samples.items() for r in rs], indent=2) + "\n"
        )
    return 1 if any(map(failed, [samples])) else 0


def table(samples: Samples, sequences: list[int]) -> str:
    """A table in Markdown, one column for each scheduler."""
    names = [scheduler.name for scheduler in SCHEDULERS]
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for title, style, figure in ROWS:
        for count in sequences:
            cells = [cell([figure(result) for result in samples[count, name]], style) for name in names]
            lines.append(f"| {title}, {count:,} sequences | {' | '.join(cells)} |")
    return "\n".join(lines)


def two_over_one(samples: Samples, count: int) -> str:
    """What two instances cost over one, with free sequences and without a backend's work."""

    def cost(name: str) -> float:
        return statistics.median(cpu_per_request(result) for result in samples[count, name])

    def ratio(name: str) -> float:
        return cost(name + TWO) / cost(name)

    def over(instances: str) -> float:
        return cost("free" + instances) - cost("nothing" + instances)

    return (
        f"{count:,} sequences, CPU time of two instances over one: free {ratio('free'):.2f}, nothing {ratio('nothing'):.2f}; "
        f"free over nothing: {over(''):.1f} µs a request with one, {over(TWO):.1f} with two"
    )


def cell(values: list[float], style: str) -> str:
    middle, least, greatest = (format(value, style) for value in (statistics.median(values), min(values), max(values)))
    return middle if least == greatest else f"{middle} ({least}–{greatest})"
