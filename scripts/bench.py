"""Benchmarks the stateful backend: go run build.go bench

End to end: a real tritonserver, loaded with sequences by a native load generator. Every contender (a backend and what it
needs) serves the same model with the same scheduler in a server of its own. The servers are measured in turns, in
many short rounds, each of which another one begins, and the table shows the medians: on a shared machine single
figures move by a factor of two, while ratios within a round hold. The steadiest figure is the server's CPU time per
request.

  stateful  this backend
  nothing   a backend that answers with zeros: what the server itself costs
  floor     the same, which also runs ONNX Runtime, with states in place: what no backend can get below
  python    a model of the Python backend that keeps states in a dict and runs ONNX Runtime

The last column is the server's CPU time over that of floor.

With --step, the step alone instead: whole batches through the library's entry points, with a fake Triton,
against ONNX Runtime in a loop at the same batch; with --micro the parts of a step. With --wrong what one client who always
sends a value that the model refuses costs the others; it uses --sequences (default: 32), --rounds, --seconds and --warmup.
With --weights what several instances of a model of 200 MB cost, with the same options.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import psutil
from google.protobuf import text_format
from tritonclient.grpc import InferenceServerClient, model_config_pb2
from tritonclient.utils import InferenceServerException

import benchweights
import benchwrong
from benchlayout import Layout, Tensor
from benchreport import Samples, cpu_per_request, plot, table
from gobench import micro, step
from tritonserver import BACKENDS, ServerError, TritonServer, exit_on_sigterm

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "internal" / "bench"
BUILD = ROOT / "build" / "bench"
MODELS = BUILD / "models"
LOADGEN = BUILD / "loadgen"
OTHERS = BUILD / "backends"  # nothing and python
MAX_SEQUENCES = 1024  # that floor has states for
PYTHON = BUILD / "python-venv"  # for the stub of the Python backend

ModelConfig = model_config_pb2.ModelConfig


@dataclass(frozen=True)
class Workload:
    """A model of internal/bench/models, and how its answers are asked for and checked."""

    model: str
    output: str
    verify: bool = False  # the load generator's -verify

    @property
    def file(self) -> Path:
        return MODELS / self.model / "1" / "model.onnx"

    def config(self, max_batch: int) -> ModelConfig:
        """The model's configuration; what matters is equal for all contenders: batch size, one instance, no delay."""
        config = text_format.Parse((MODELS / self.model / "config.pbtxt").read_text(), ModelConfig())
        config.max_batch_size = max_batch
        return config

    @cached_property
    def layout(self) -> Layout:
        text = self.config(1).parameters["state_pairs"].string_value
        pairs = [tuple(pair.split(", ")) for pair in text.removeprefix("<<<").removesuffix(">>>").split(">>>, <<<")]
        return Layout.of(self.file, pairs, {"seq": 4})


@dataclass(frozen=True)
class Contender:
    """A backend under test. prepare adjusts a configuration and fills the model's folder."""

    name: str
    backends: Path
    prepare: Callable[[Workload, ModelConfig, Path], None]
    computes: bool = True  # False: answers are zeros, so they are not checked

    def environment(self) -> dict[str, str]:
        """The stub of the Python backend uses the first Python in the PATH."""
        return {"PATH": f"{PYTHON / 'bin'}:{os.environ['PATH']}"} if self.name == "python" else {}


def prepare_stateful(workload: Workload, config: ModelConfig, folder: Path) -> None:
    (folder / "1").mkdir()
    (folder / "1" / "model.onnx").symlink_to(workload.file)


def prepare_nothing(workload: Workload, config: ModelConfig, folder: Path) -> None:
    """Tells the do-nothing backend which outputs to send; see internal/bench/nothing/nothing.c."""
    config.backend = "nothing"
    (folder / "1").mkdir()
    outputs = [output for output in config.output if output.name == workload.output]
    lines = [" ".join([tensor.name, datatype(tensor), *map(str, shape(tensor))]) for tensor in outputs]
    (folder / "outputs.txt").write_text("\n".join(lines) + "\n")


def prepare_floor(workload: Workload, config: ModelConfig, folder: Path) -> None:
    """Lets the do-nothing backend step the model, too; see internal/bench/nothing/inplace.h."""
    prepare_nothing(workload, config, folder)
    layout = workload.layout
    reset = [Tensor(layout.reset, np.bool_, (-1, 1))] if layout.reset else []
    lines = [f"input {tensor.name} {described(tensor)}" for tensor in [*layout.inputs, *reset]]
    lines += [f"output {tensor.name} {described(tensor)}" for tensor in layout.outputs]
    lines += [f"state {before.name} {after.name} {described(before)}" for before, after in layout.states]
    library = BACKENDS / "stateful" / "libonnxruntime_stateful.so"
    (folder / "session.txt").write_text("\n".join([str(library), str(workload.file), str(MAX_SEQUENCES), *lines]) + "\n")


def described(tensor: Tensor) -> str:
    onnx_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return " ".join(map(str, [np.dtype(tensor.dtype).itemsize, onnx_type, *tensor.shape]))


def prepare_python(workload: Workload, config: ModelConfig, folder: Path) -> None:
    config.backend = "python"
    prepare_stateful(workload, config, folder)
    shutil.copy(SOURCE / "python" / "model.py", folder / "1")
    (folder / "1" / "layout.json").write_text(json.dumps(workload.layout.as_json()))


WORKLOADS = {
    workload.model: workload
    for workload in [
        Workload("accumulate_fp32", output="Output", verify=True),
        Workload("lstm2x512", output="y"),
        Workload("kvring", output="y"),
    ]
}

CONTENDERS = {
    contender.name: contender
    for contender in [
        Contender("stateful", BACKENDS, prepare_stateful),
        Contender("nothing", OTHERS, prepare_nothing, computes=False),
        Contender("floor", OTHERS, prepare_floor, computes=False),
        Contender("python", OTHERS, prepare_python),
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


def build(contenders: list[str]) -> None:
    """Builds what is missing; the tools cache or take a moment."""
    run([sys.executable, str(SOURCE / "models" / "models.py"), str(MODELS)])
    run(["go", "-C", str(SOURCE), "build", "-o", str(LOADGEN), "./loadgen"])
    library = OTHERS / "nothing" / "libtriton_nothing.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    run(
        ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-fPIC", "-shared"]
        + ["-I", wrapper_folder(), "-o", str(library), *map(str, sorted((SOURCE / "nothing").glob("*.c")))]
    )
    if "python" in contenders:
        build_python()


def wrapper_folder() -> str:
    """Where the header of ONNX Runtime's C API is: in the module of its Go wrapper."""
    command = ["go", "-C", str(ROOT), "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def build_python() -> None:
    """Puts Triton's Python backend together: the library, the stub for this Python, and an environment with the numpy
    that the stub needs."""
    server = next((ROOT / "build" / "venv").glob("lib/python3*/site-packages/pytriton/tritonserver"))
    stub = server / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = OTHERS / "python"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*(server / "backends" / "python").glob("*.*"), *stub.iterdir()):
        link = folder / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file)
    if not (PYTHON / "bin" / "python").exists():
        run([sys.executable, "-m", "venv", str(PYTHON)])
        pins = ["numpy==1.26.4", f"onnxruntime=={onnxruntime.__version__}"]
        run([str(PYTHON / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet", *pins])


def run(command: list[str]) -> None:
    print("+", *command, flush=True)
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        sys.exit(f"bench: {command[0]} is not installed")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"bench: {command[0]} failed with exit code {failure.returncode}")


class Reading(NamedTuple):
    """What a server's counters say at a moment."""

    at: float  # seconds
    cpu: float  # seconds of all its processes
    rss: int  # bytes
    inferences: int
    executions: int


@dataclass(frozen=True)
class Target:
    """A contender's running server with one model."""

    contender: Contender
    workload: Workload
    config: ModelConfig
    server: TritonServer

    def command(self, options: argparse.Namespace) -> list[str]:
        """The load generator for this server."""
        return [
            str(LOADGEN), "-url", self.server.grpc_url, "-steps", str(options.steps),
            "-model", self.workload.model, "-inputs", self.inputs(), "-outputs", self.workload.output,
        ]  # fmt: skip

    def load(self, sequences: int, options: argparse.Namespace) -> dict:
        """Loads the server once; returns what the load generator says and what the server spent meanwhile."""
        command = self.command(options) + [
            "-sequences", str(sequences), "-streams", str(options.streams),
            "-duration", f"{options.seconds}s", "-warmup", f"{options.warmup}s",
        ]  # fmt: skip
        if has_string_ids(self.config):
            command.append("-string-ids")
        if self.contender.computes and self.workload.verify:
            command += ["-verify", *self.end_answer()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as clients:
            before = self.read() if clients.stdout.readline() else None  # it writes a line when it begins to measure,
            after = self.read() if clients.stdout.readline() else None  # another one at the end, and then the result
            # Not communicate: it does not see what the lines before have left in the buffer.
            text, reason = clients.stdout.read(), clients.stderr.read()
        result = json.loads(text) if text else {}
        if not result.get("requests"):
            reason = reason or f"nothing was answered in {options.seconds:g} s"
            raise ServerError(f"{self.contender.name}: {reason}\n{self.server.log_tail()}")
        processors = (after.cpu - before.cpu) / (after.at - before.at)
        return result | {
            "sequences": sequences,
            "cpu_us_per_request": processors * 1e6 / result["requests_per_second"],
            "mean_batch": (after.inferences - before.inferences) / max(after.executions - before.executions, 1),
            "rss_bytes": after.rss,
        }

    def read(self) -> Reading:
        """The server's counters now, with those of the processes that it has started, as the Python backend does."""
        try:
            with InferenceServerClient(self.server.grpc_url) as client:
                model = client.get_inference_statistics(self.workload.model).model_stats[0]
            root = psutil.Process(self.server.pid)
            processes = [root, *root.children(recursive=True)]
            cpu = sum(sum(process.cpu_times()[:2]) for process in processes)
            rss = sum(process.memory_info().rss for process in processes)
        except (psutil.Error, InferenceServerException) as failure:
            raise ServerError(f"{self.contender.name}: {failure}\n{self.server.log_tail()}") from None
        return Reading(time.monotonic(), cpu, rss, model.inference_count, model.execution_count)

    def load_again(self, sequences: int, options: argparse.Namespace) -> dict:
        """load, in a new server if the old one crashes: with many streamed requests tritonserver 2.51 does, if
        rarely, with any backend."""
        try:
            return self.load(sequences, options)
        except ServerError as failure:
            time.sleep(2)  # it may still be writing down where it crashed
            if self.server.is_running():
                raise
            print(f"    the server crashed and is started again; its log is {self.server.log}\n    {failure}", flush=True)
            self.server.stop()
            self.server.start()
            return self.load(sequences, options)

    def inputs(self) -> str:
        tensors = [{"name": tensor.name, "datatype": datatype(tensor), "shape": shape(tensor)} for tensor in self.config.input]
        return json.dumps(tensors)

    def end_answer(self) -> list[str]:
        """How END is answered, as the load generator is told."""
        empty = self.config.parameters["infer_end_requests"].string_value == "0"
        return ["-empty-end"] if empty else []


@contextlib.contextmanager
def serve(contender: Contender, workload: Workload, max_batch: int) -> Iterator[Target]:
    """Starts a server of the contender for one model; it ends with the context."""
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary) / workload.model
        folder.mkdir()
        config = workload.config(max_batch)
        contender.prepare(workload, config, folder)
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
        with TritonServer(Path(temporary), contender.backends, env=contender.environment()) as server:
            yield Target(contender, workload, config, server)


def measure(workload: Workload, options: argparse.Namespace) -> Samples:
    """Runs all rounds of one workload. The contenders alternate fastest, so that they meet the same machine, and each is
    the first of a round in turn."""
    samples: Samples = {}
    with contextlib.ExitStack() as stack:
        targets = []
        for name in options.contenders:
            print(f"{workload.model}: starting the server of {name}", flush=True)
            targets.append(stack.enter_context(serve(CONTENDERS[name], workload, options.max_batch)))
        for round_number in range(1, options.rounds + 1):
            for sequences in options.sequences:
                first = (round_number - 1) % len(targets)
                for target in targets[first:] + targets[:first]:
                    result = target.load_again(sequences, options)
                    samples.setdefault((sequences, target.contender.name), []).append(result)
                    shown = progress(target.contender.name, result)
                    print(f"  round {round_number}/{options.rounds}  {shown}", flush=True)
    return samples


def progress(name: str, result: dict) -> str:
    line = f"{name:<10}{result['sequences']:>5} sequences {result['requests_per_second']:>9,.0f} requests/s"
    line += f" {cpu_per_request(result):>7.1f} µs/request {result['mean_batch']:>5.1f} a batch"
    if result["errors"] or result["mismatches"]:
        line += f"\n    FAILED: {result['errors']} errors, {result['mismatches']} wrong answers: {result['texts'][0]}"
    return line


def failed(samples: Samples) -> bool:
    return any(result["errors"] or result["mismatches"] for results in samples.values() for result in results)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="go run build.go bench"
    )
    add = parser.add_argument
    add("--model", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="models to serve (default: all)")
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="backends (default: all)")
    add("--before", type=Path, metavar="FOLDER", help="a backends folder of another version, to be measured too")
    add("--sequences", nargs="+", type=positive, metavar="N",
        help=f"concurrent sequences up to {MAX_SEQUENCES}, each with one request in flight (default: 8 64 256)")  # fmt: skip
    add("--rounds", type=positive, default=16, metavar="N", help="rounds to take the medians of (default: 16)")
    add("--seconds", type=float, default=0.6, metavar="S", help="time of one measurement (default: 0.6)")
    add("--warmup", type=float, default=0.2, metavar="S", help="load before each measurement (default: 0.2)")
    add("--steps", type=positive, default=100, metavar="N",
        help="requests of a sequence before it ends and a new one starts (default: 100)")  # fmt: skip
    add("--streams", type=positive, default=4, metavar="N", help="gRPC streams for the sequences (default: 4)")
    add("--max-batch", type=positive, default=64, metavar="N", help="max_batch_size of the models (default: 64)")
    add("--json", type=Path, metavar="FILE", help="also write every single result to a file")
    add("--plot", type=Path, metavar="FILE", help="also draw the medians, as a PNG or SVG file (needs matplotlib)")
    add("--step", action="store_true", help="measure the step alone, without a server")
    add("--micro", action="store_true", help="measure the parts of a step")
    add("--wrong", action="store_true", help="measure what a client of wrong values costs the others")
    add("--weights", action="store_true", help="measure the memory and throughput of several instances of a large model")
    options = parser.parse_args()
    if options.before:
        CONTENDERS["before"] = Contender("before", options.before.resolve(), prepare_stateful)
        options.contenders.append("before")
    options.sequences = options.sequences or ([32] if options.wrong or options.weights else [8, 64, 256])
    return options


def load_weights(server: TritonServer, config: ModelConfig, options: argparse.Namespace) -> dict:
    """Loads a server of benchweights once."""
    return Target(CONTENDERS["stateful"], Workload(config.name, output="y"), config, server).load(options.sequences[0], options)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main() -> int:
    options = parse_options()
    exit_on_sigterm()
    if options.step or options.micro:
        run([sys.executable, str(SOURCE / "models" / "models.py"), str(MODELS)])
        return (step if options.step else micro)(ROOT, BACKENDS, MODELS)
    if options.wrong:
        build(["stateful"])
        with serve(CONTENDERS["stateful"], Workload("tokens", output="y"), options.max_batch) as target:
            return benchwrong.measure(target, options)
    if options.weights:
        build(["stateful"])
        return benchweights.measure(partial(load_weights, options=options), BUILD / "weights", options)
    build(options.contenders)
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
    if options.plot:
        plot(results, options.plot)
    if any(failed(samples) for samples in results.values()):
        print("\nFAILED: requests failed or answers were wrong, see above; the figures do not count")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
