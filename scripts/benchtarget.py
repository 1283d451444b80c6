"""A contender's running server, and the load of internal/bench/loadgen on it."""

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
from google.protobuf import text_format
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from benchbuild import LOADGEN
from benchcontenders import Contender
from benchworkload import ModelConfig, Setting, Workload, datatype, has_string_ids, shape
from tritonserver import ServerError, TritonServer

LOAD_TIMEOUT = 180  # seconds for the largest models on a busy machine
PAUSE = 1.0  # seconds that the server has when all sequences are open
SETTLED = 0.6  # of these have passed when its memory is read


class Reading(NamedTuple):
    """What a server's counters say at a moment."""

    at: float  # seconds
    cpu: float  # seconds of all its processes
    rss: int  # bytes
    batches: dict[int, int]  # how many of each size were run


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

    def load(self, sequences: int, options: argparse.Namespace, *, rate: float = 0, active: int = 0) -> dict:
        """Loads the server once; returns what the load generator says and what the server spent meanwhile.

        With a rate, so many requests arrive per second, at random times; else the next request of a sequence follows the
        answer. With active, so many requests are in flight, of any sequences; then the result has the server's memory with
        all sequences open and none active, too.
        """
        seconds, warmup = (time * self.workload.pace for time in (options.seconds, options.warmup))
        command = self.command(options) + [
            "-sequences", str(sequences), "-streams", str(options.streams),
            "-duration", f"{seconds}s", "-warmup", f"{warmup}s", "-rate", str(rate),
            "-active", str(active), "-pause", f"{PAUSE}s",
        ]  # fmt: skip
        if has_string_ids(self.config):
            command.append("-string-ids")
        if self.contender.computes and self.workload.verify and not rate:
            command += ["-verify", *self.end_answer()]
        opened = None
        with running(command) as clients:
            if active and clients.stdout.readline():  # all sequences are open
                time.sleep(SETTLED)
                opened = self.read()
            before = self.read() if clients.stdout.readline() else None  # it writes a line when it begins to measure,
            after = self.read() if clients.stdout.readline() else None  # another one at the end, and then the result
            # Not communicate: it does not see what the lines before have left in the buffer.
            text, reason = clients.stdout.read(), clients.stderr.read()
        result = json.loads(text) if text else {}
        if not result.get("requests"):
            reason = reason or f"nothing was answered in {seconds:g} s"
            raise ServerError(f"{self.contender.name}: {reason}\n{self.server.log_tail()}")
        batches = {size: count - before.batches.get(size, 0) for size, count in after.batches.items()}
        processors = (after.cpu - before.cpu) / (after.at - before.at)
        return result | {
            "sequences": sequences,
            "cpu_us_per_request": processors * 1e6 / result["requests_per_second"],
            "mean_batch": share(batches, 1) / max(share(batches, 0), 1),
            "batch_of_request": share(batches, 2) / max(share(batches, 1), 1),
            "rss_bytes": after.rss,
            "opened_rss_bytes": opened.rss if opened else 0,
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
        batches = {each.batch_size: each.compute_infer.count for each in model.batch_stats}
        return Reading(time.monotonic(), cpu, rss, batches)

    def load_again(self, sequences: int, options: argparse.Namespace, **kind) -> dict:
        """load, in a new server if the old one crashes: with many streamed requests tritonserver 2.51 does, if
        rarely, with any backend."""
        try:
            return self.load(sequences, options, **kind)
        except ServerError as failure:
            time.sleep(2)  # it may still be writing down where it crashed
            if self.server.is_running():
                raise
            print(f"    the server crashed and is started again; its log is {self.server.log}\n    {failure}", flush=True)
            self.server.stop()
            self.server.start()
            return self.load(sequences, options, **kind)

    def inputs(self) -> str:
        tensors = [{"name": tensor.name, "datatype": datatype(tensor), "shape": shape(tensor)} for tensor in self.config.input]
        return json.dumps(tensors)

    def end_answer(self) -> list[str]:
        """How END is answered, as the load generator is told."""
        empty = self.config.parameters["infer_end_requests"].string_value == "0"
        return ["-empty-end"] if empty else []


def share(batches: dict[int, int], power: int) -> int:
    """The sum of a power of the sizes of all batches. Of the mean size, each batch counts once; of the mean size of the batch
    that a request is in, once for each of its requests."""
    return sum(count * size**power for size, count in batches.items())


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen]:
    """Runs a command whose output is read. It is ended if that fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            raise


@contextlib.contextmanager
def serve(contender: Contender, workload: Workload, setting: Setting, processors: Collection[int] = ()) -> Iterator[Target]:
    """Starts a server of the contender for one model; it ends with the context. It may use these processors, or all."""
    print(f"{workload.model}: starting the server of {contender.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary) / workload.model
        folder.mkdir()
        config = workload.config(setting)
        contender.prepare(workload, config, folder, setting)
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
        server = TritonServer(
            Path(temporary), contender.backends, env=contender.environment, timeout=LOAD_TIMEOUT, processors=processors
        )
        with server:
            check_preloaded(server, contender.preloaded)
            yield Target(contender, workload, config, server)


@contextlib.contextmanager
def serve_all(
    contenders: Sequence[Contender], workload: Workload, setting: Setting, processors: Collection[int] = ()
) -> Iterator[list[Target]]:
    """Starts a server of each contender for one model, as serve does; they end with the context."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serve(contender, workload, setting, processors)) for contender in contenders]


def in_turn(targets: list[Target], round_number: int) -> list[Target]:
    """The targets in the order of a round, which is 1 or more: each begins one in turn."""
    first = (round_number - 1) % len(targets)
    return targets[first:] + targets[:first]


def rounds(
    contenders: Sequence[Contender], workload: Workload, setting: Setting, options: argparse.Namespace
) -> Iterator[tuple[str, list[Target]]]:
    """Yields the name and the targets of each round, in the order of in_turn. The servers are started several times if
    options.starts says so: those of one library can differ for as long as they live."""
    for start in range(options.starts):
        with serve_all(contenders, workload, setting) as targets:
            for number in range(1, options.rounds + 1):
                yield f"{start * options.rounds + number}/{options.starts * options.rounds}", in_turn(targets, number)


def check_preloaded(server: TritonServer, library: str) -> None:
    """The linker only warns about a library that it cannot preload."""
    if library and Path(library).name.split(".so")[0] not in Path(f"/proc/{server.pid}/maps").read_text():
        raise ServerError(f"{library} could not be preloaded into the server:\n{server.log_tail()}")
