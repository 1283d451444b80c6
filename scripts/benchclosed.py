"""Throughput and CPU time under a fixed number of sequences with one request in flight each: go run build.go bench

All contenders serve the model at once and are loaded in turns, in many short rounds, each of which another one begins.
"""

import argparse
import json
import os

from benchcontenders import Contender
from benchreport import Samples, counted, cpu_per_request, plot, table
from benchtarget import rounds
from benchworkload import WORKLOADS, Setting, Workload


def measure(contenders: list[Contender], options: argparse.Namespace) -> int:
    """Prints a table for each model, and says by the exit code whether all requests were answered, and right."""
    results = {name: loads(WORKLOADS[name], contenders, options) for name in options.model}
    for name, samples in results.items():
        seconds = options.seconds * WORKLOADS[name].pace
        print(
            f"\n{name}: max batch {options.max_batch}, {counted(options.instances, 'instance')}, medians of "
            f"{counted(options.starts * options.rounds, 'round')} of {seconds:g} s; {os.cpu_count()} processors shared by server and load generator"
        )
        print(table(samples))
    if options.json:
        everything = [{"model": model, "backend": backend, **result} for model, samples in results.items()
                      for (_, backend), runs in samples.items() for result in runs]  # fmt: skip
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    if options.plot:
        plot(results, options.plot)
    if any(failed(samples) for samples in results.values()):
        print("\nFAILED: requests failed or answers were wrong, see above; the figures do not count")
        return 1
    return 0


def loads(workload: Workload, contenders: list[Contender], options: argparse.Namespace) -> Samples:
    """Runs all rounds of one workload. The contenders alternate fastest, so that they meet the same machine."""
    samples: Samples = {}
    setting = Setting(options.max_batch, options.instances, max(options.sequences))
    for name, targets in rounds(contenders, workload, setting, options):
        for sequences in options.sequences:
            for target in targets:
                result = target.load_again(sequences, options)
                samples.setdefault((sequences, target.contender.name), []).append(result)
                print(f"  round {name}  {progress(target.contender.name, result)}", flush=True)
    return samples


def progress(name: str, result: dict) -> str:
    line = f"{name:<18}{result['sequences']:>6} sequences {result['requests_per_second']:>9,.0f} requests/s"
    line += f" {cpu_per_request(result):>7.1f} µs/request {result['mean_batch']:>5.1f} a batch"
    if result["errors"] or result["mismatches"]:
        line += f"\n    FAILED: {result['errors']} errors, {result['mismatches']} wrong answers: {result['texts'][0]}"
    return line


def failed(samples: Samples) -> bool:
    return any(result["errors"] or result["mismatches"] for results in samples.values() for result in results)
