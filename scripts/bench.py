"""Benchmarks the stateful backend end to end: a real tritonserver, loaded with sequences by a native load generator.

Every contender (a backend and what it needs) serves the same model with the same scheduler in a server of its own.
The servers are measured in turns, in several rounds, and the table shows the medians: on a shared machine single
figures move by a factor of two, while ratios within a round hold. The steadiest figure is the server's CPU time per
request. The backend "nothing" answers with zeros: it shows what the server costs without any backend.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tritonserver import BACKENDS, MODELS, ServerError, TritonServer, exit_on_sigterm

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
LOADGEN = BUILD / "loadgen"
NOTHING = BUILD / "backends"

ModelConfig = model_config_pb2.ModelConfig


@dataclass(frozen=True)
class Workload:
    """A model of the example repository, and how its answers are asked for and checked."""

    model: str
    outputs: tuple[str, ...]
    verify: str = ""  # the load generator's -verify; empty: answers are not checked

    def config(self, max_batch: int) -> ModelConfig:
        """The model's configuration, with what must be equal for all contenders: batch size, one instance, no delay."""
        text = (MODELS / self.model / "config.pbtxt").read_text()
        config = text_format.Parse(text, ModelConfig())
        config.max_batch_size = max_batch
        for group in config.instance_group:
            group.count = 1
        config.sequence_batching.oldest.max_queue_delay_microseconds = 0
        config.parameters["buffer_alloc_threshold"].string_value = str(max_batch)  # it must not be below
        return config


@dataclass(frozen=True)
class Contender:
    """A backend under test. prepare adjusts a configuration and fills the model's folder."""

    name: str
    backends: Path
    prepare: Callable[[Workload, ModelConfig, Path], None]
    computes: bool = True  # False: answers are zeros, so they are not checked


def prepare_stateful(workload: Workload, config: ModelConfig, folder: Path) -> None:
    shutil.copytree(MODELS / workload.model / "1", folder / "1")


def prepare_nothing(workload: Workload, config: ModelConfig, folder: Path) -> None:
    """Tells the do-nothing backend which outputs to send; see internal/bench/nothing/nothing.c."""
    config.backend = "nothing"
    (folder / "1").mkdir()
    outputs = [output for output in config.output if output.name in workload.outputs]
    lines = [" ".join([tensor.name, datatype(tensor), *map(str, shape(tensor))]) for tensor in outputs]
    (folder / "outputs.txt").write_text("\n".join(lines) + "\n")


WORKLOADS = {
    workload.model: workload
    for workload in [
        Workload("accumulate_fp32", outputs=("Output",), verify="accumulate"),
    ]
}

CONTENDERS = {
    contender.name: contender
    for contender in [
        Contender("stateful", BACKENDS, prepare_stateful),
        Contender("nothing", NOTHING, prepare_nothing, computes=False),
    ]
}


def datatype(tensor) -> str:
    """The KServe name of a tensor's type in a configuration."""
    name = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def shape(tensor) -> list[int]:
    """The shape of one request: a batch axis of 1, and 1 for every axis that the configuration leaves open."""
    return [1, *(max(dim, 1) for dim in tensor.dims)]


def has_string_ids(config: ModelConfig) -> bool:
    control = model_config_pb2.ModelSequenceBatching.Control
    return any(
        kind.kind == control.CONTROL_SEQUENCE_CORRID and kind.data_type == model_config_pb2.TYPE_STRING
        for control_input in config.sequence_batching.control_input
        for kind in control_input.control
    )


def build() -> None:
    """Builds the load generator and the do-nothing backend; both tools cache or take a moment."""
    library = NOTHING / "nothing" / "libtriton_nothing.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "internal" / "bench"
    run(["go", "-C", str(source), "build", "-o", str(LOADGEN), "./loadgen"])
    run(
        ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-fPIC", "-shared"]
        + ["-o", str(library), str(source / "nothing" / "nothing.c")]
    )


def run(command: list[str]) -> None:
    print("+", *command, flush=True)
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        sys.exit(f"bench: {command[0]} is not installed")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"bench: {command[0]} failed with exit code {failure.returncode}")


@dataclass(frozen=True)
class Target:
    """A contender's running server with one model."""

    contender: Contender
    workload: Workload
    config: ModelConfig
    server: TritonServer

    def load(self, sequences: int, options: argparse.Namespace) -> dict:
        """Loads the server once and returns the load generator's result."""
        command = [
            str(LOADGEN), "-json",
            "-url", self.server.grpc_url, "-server-pid", str(self.server.pid),
            "-model", self.workload.model, "-inputs", self.inputs(), "-outputs", ",".join(self.workload.outputs),
            "-sequences", str(sequences), "-streams", str(options.streams), "-steps", str(options.steps),
            "-duration", f"{options.seconds}s", "-warmup", f"{options.warmup}s",
        ]  # fmt: skip
        if has_string_ids(self.config):
            command.append("-string-ids")
        if self.contender.computes and self.workload.verify:
            command += ["-verify", self.workload.verify, "-end-answer", self.end_answer()]
        finished = subprocess.run(command, capture_output=True, text=True)
        if not finished.stdout:
            raise ServerError(f"{self.contender.name}: {finished.stderr}\n{self.server.log_tail()}")
        return json.loads(finished.stdout)

    def inputs(self) -> str:
        tensors = [
            {"name": tensor.name, "datatype": datatype(tensor), "shape": shape(tensor)}
            for tensor in self.config.input
        ]
        return json.dumps(tensors)

    def end_answer(self) -> str:
        parameters = {name: value.string_value for name, value in self.config.parameters.items()}
        return "empty" if parameters.get("infer_end_requests") == "0" else "computed"


@contextlib.contextmanager
def serve(contender: Contender, workload: Workload, max_batch: int) -> Iterator[Target]:
    """Starts a server of the contender for one model; it ends with the context."""
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary) / workload.model
        folder.mkdir()
        config = workload.config(max_batch)
        contender.prepare(workload, config, folder)
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
        with TritonServer(Path(temporary), contender.backends) as server:
            yield Target(contender, workload, config, server)


Samples = dict[tuple[int, str], list[dict]]  # results by sequences and contender


def measure(workload: Workload, options: argparse.Namespace) -> Samples:
    """Runs all rounds of one workload. The contenders alternate fastest, so that they meet the same machine."""
    samples: Samples = {}
    with contextlib.ExitStack() as stack:
        targets = []
        for name in options.contenders:
            print(f"{workload.model}: starting the server of {name}", flush=True)
            targets.append(stack.enter_context(serve(CONTENDERS[name], workload, options.max_batch)))
        for round_number in range(1, options.rounds + 1):
            for sequences in options.sequences:
                for target in targets:
                    result = target.load(sequences, options)
                    samples.setdefault((sequences, target.contender.name), []).append(result)
                    shown = progress(target.contender.name, result)
                    print(f"  round {round_number}/{options.rounds}  {shown}", flush=True)
    return samples


def progress(name: str, result: dict) -> str:
    line = f"{name:<10}{result['sequences']:>5} sequences {result['requests_per_second']:>9,.0f} requests/s"
    if result["errors"] or result["mismatches"]:
        texts = result.get("error_texts", []) + result.get("mismatch_texts", [])
        line += f"\n    FAILED: {result['errors']} errors, {result['mismatches']} wrong answers: {texts[0]}"
    return line


def cpu_per_request(result: dict) -> float:
    return result["process"]["cpu_us_per_request"]


# The columns of the table: title, format, and where the figure is in a result.
COLUMNS: list[tuple[str, str, Callable[[dict], float]]] = [
    ("requests/s", ",.0f", lambda r: r["requests_per_second"]),
    ("p50 µs", ",.0f", lambda r: r["phases"]["measure"]["latency_us"]["p50"]),
    ("p99 µs", ",.0f", lambda r: r["phases"]["measure"]["latency_us"]["p99"]),
    ("mean batch", ".1f", lambda r: r["server"]["mean_batch"]),
    ("server CPU µs/request", ".1f", cpu_per_request),
    ("RSS MiB", ".0f", lambda r: r["process"]["rss_bytes"] / 2**20),
]


def table(samples: Samples) -> str:
    """The medians of all rounds, one row per number of sequences and contender."""
    rows = [["sequences", "backend", *(title for title, _, _ in COLUMNS), "CPU / nothing"]]
    for (sequences, name), results in samples.items():
        medians = [format(statistics.median(map(figure, results)), style) for _, style, figure in COLUMNS]
        rows.append([str(sequences), name, *medians, over_floor(results, samples.get((sequences, "nothing")))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def over_floor(results: list[dict], floor: list[dict] | None) -> str:
    """The median of the rounds' ratios of CPU time per request to that of the do-nothing backend."""
    if floor is None:
        return "-"
    return format(statistics.median(cpu_per_request(a) / cpu_per_request(b) for a, b in zip(results, floor)), ".2f")


def failed(samples: Samples) -> bool:
    return any(result["errors"] or result["mismatches"] for results in samples.values() for result in results)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="go run build.go bench"
    )
    add = parser.add_argument
    add("--model", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="models to serve (default: all)")
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="backends (default: all)")
    add("--sequences", nargs="+", type=positive, default=[8, 64, 256], metavar="N",
        help="concurrent sequences, each with one request in flight (default: 8 64 256)")  # fmt: skip
    add("--rounds", type=positive, default=3, metavar="N", help="rounds to take the medians of (default: 3)")
    add("--seconds", type=float, default=4, metavar="S", help="time of one measurement (default: 4)")
    add("--warmup", type=float, default=0.5, metavar="S", help="load before each measurement (default: 0.5)")
    add("--steps", type=positive, default=100, metavar="N",
        help="requests of a sequence before it ends and a new one starts (default: 100)")  # fmt: skip
    add("--streams", type=positive, default=4, metavar="N", help="gRPC streams for the sequences (default: 4)")
    add("--max-batch", type=positive, default=64, metavar="N", help="max_batch_size of the models (default: 64)")
    add("--json", type=Path, metavar="FILE", help="also write every single result to a file")
    return parser.parse_args()


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main() -> int:
    options = parse_options()
    exit_on_sigterm()
    build()
    try:
        results = {name: measure(WORKLOADS[name], options) for name in options.model}
    except ServerError as failure:
        sys.exit(f"bench: {failure}")
    for name, samples in results.items():
        print(
            f"\n{name}: max batch {options.max_batch}, medians of {options.rounds} rounds of {options.seconds:g} s; "
            f"{os.cpu_count()} processors shared by server and load generator"
        )
        print(table(samples))
    if options.json:
        everything = [{"backend": backend, **result} for samples in results.values()
                      for (_, backend), runs in samples.items() for result in runs]  # fmt: skip
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    if any(failed(samples) for samples in results.values()):
        print("\nFAILED: requests failed or answers were wrong, see above; the figures do not count")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
