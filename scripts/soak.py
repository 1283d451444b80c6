"""Soaks the stateful backend in a real tritonserver: full load, with clients that misuse sequences.

Every model keeps states that say which sequence they belong to, and has fewer slots than there are clients. Clients
begin sequences, continue and end them, start again without END, come back too late, send two requests at once, and break
their streams. They are a program in Go (internal/bench/soak), which records every request and its answer. While it runs,
each answer is compared with what the client's sequence must give (oracle.py). The soak fails if an answer comes from the
state of another sequence, if an error is not allowed, or if memory grows.

With --models it serves random models instead (modelsoak.py).
"""

import argparse
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

import graphs
import modelsoak
from checker import Checker
from graphs import op, tensor
from oracle import Rules
from soakreport import Process, Report
from tritonserver import TritonServer, exit_on_sigterm

ROOT = Path(__file__).resolve().parent.parent
SOAK = ROOT / "build" / "bench" / "soak"

IDLE_SECONDS = 2.0  # max_sequence_idle_microseconds of the models
BATCH = 32
BATCH_SLOTS = 640  # of a model with direct
CANDIDATES = 2048  # of Triton, more than there are clients, so that none waits in its backlog
NAMES_A_STEP = 24  # that a step adds to a growing state: 192 bytes, so that it needs more memory again and again
LONGEST = 3 * NAMES_A_STEP

CONFIG = """
backend: "stateful"
max_batch_size: {batch}
input [{{ name: "X" data_type: TYPE_INT64 dims: [1] }}]
output [{{ name: "Y" data_type: TYPE_INT64 dims: [3] }}]
instance_group [{{ kind: KIND_CPU }}]
{scheduler}
"""
WAIT = "max_queue_delay_microseconds: 500"
IDLE = f"max_sequence_idle_microseconds: {round(IDLE_SECONDS * 1e6)}"
SCHEDULERS = {
    "oldest": f"sequence_batching {{ {IDLE} oldest {{ max_candidate_sequences: {CANDIDATES} {WAIT} }} }}",
    "direct": f"sequence_batching {{ {IDLE} direct {{ {WAIT} }} }}",
    "free": f"dynamic_batching {{ {WAIT} }}",
}


@dataclass(frozen=True)
class Model:
    """A model and its parameters. Lazy slots: they come and go in chunks. With direct there is a slot for each of BATCH_SLOTS
    batch slots from the beginning, and the STARTs of further clients wait in Triton."""

    name: str
    slots: int
    names: tuple[int, int] = (2, 3)  # extents of the state of names, before and after the batch
    growing: bool = False  # it has a state of varying shape, too
    scheduler: str = "oldest"
    parameters: dict[str, str] = field(default_factory=dict)

    def config(self) -> str:
        parameters = {}
        if self.scheduler != "direct":
            parameters = {
                "initial_buffer_size": str(2 * BATCH),
                "subsequent_buffer_size": str(BATCH),
                "buffer_alloc_threshold": str(BATCH),
                "buffer_dealloc_threshold": str(3 * BATCH),
            }
        if self.scheduler == "oldest":
            parameters["max_candidate_sequence_use_ratio"] = str((self.slots + 0.5) / CANDIDATES)
        elif self.scheduler == "free":
            idle = str(round(IDLE_SECONDS * 1e3))
            parameters |= {"sequences": "free", "max_sequences": str(self.slots), "sequence_idle_ms": idle}
        batch = BATCH_SLOTS if self.scheduler == "direct" else BATCH
        text = CONFIG.format(batch=batch, scheduler=SCHEDULERS[self.scheduler])
        lines = [
            f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in (parameters | self.parameters).items()
        ]
        return text + "\n".join(lines) + "\n"

    def graph(self) -> ModelProto:
        return tagged_model(*self.names, self.growing)

    def rules(self) -> Rules:
        """What the model may do with its clients."""
        budget = "max_state_memory_bytes" in self.parameters
        return Rules(
            f"{self.name} ({self.scheduler})",
            idle=round(IDLE_SECONDS * 1e9),
            evicts=self.parameters.get("when_full") == "evict_lru" and (budget or self.scheduler != "direct"),
            budget=budget,
            end_silent=self.parameters.get("infer_end_requests") == "0",
            free=self.scheduler == "free",
        )


# Triton warns of every START without an END before, of which there are thousands. When it is told to end, it waits for
# the sequences that are left until they have idled too long, and then unloads the models, before this many seconds end.
OPTIONS = ["--log-warning=false", f"--exit-timeout-secs={round(3 * IDLE_SECONDS)}"]

MODELS = [
    Model("reject", slots=640),
    # Of 64 KiB: these stay where runs wrote them, and large batches are cut into several runs.
    Model("large", slots=640, names=(1, 8192), parameters={"when_full": "evict_lru"}),
    Model("inside", slots=640, names=(2, 4096)),
    Model("evict", slots=640, parameters={"when_full": "evict_lru", "infer_end_requests": "0"}),
    Model("limited", slots=640, growing=True, parameters={"max_state_memory_bytes": str(384 * 1024)}),
    Model(
        "growing", slots=640, growing=True, parameters={"when_full": "evict_lru", "max_state_memory_bytes": str(384 * 1024)}
    ),  # fmt: skip
]


def under(schedulers: list[str], seed: int) -> list[Model]:
    """The models, each with one of the schedulers: another one with the next seed."""
    return [replace(model, scheduler=schedulers[(at + seed) % len(schedulers)]) for at, model in enumerate(MODELS)]


def tagged_model(before: int, after: int, growing: bool) -> ModelProto:
    """A model whose state says whose it is.

    The first request of a sequence brings its name, X, which goes to every element of the states; Y is the least and
    the greatest element that was found, and the number of steps. A state of zeros is one that begins. There is a state
    with the batch at axis 0 and one with it at axis 1, and the growing state, which grows to its longest and is all names.
    """
    constants = {"zero": [0], "one": [1], "axis1": [1], "names": [-1, before * after], "end": [2**31]}
    constants |= {"keep": [NAMES_A_STEP - LONGEST], "add": [1, NAMES_A_STEP]}
    nodes = [
        op("Equal", "who zero -> begins"),
        op("Where", "begins X who -> new_who"),  # of [batch, 1]
        op("Add", "count one -> new_count"),
        op("Transpose", "new_who -> lanes", perm=[1, 0, 2]),
        op("Reshape", "lanes names -> flat"),
    ]
    states = {"who": [before, "batch", after], "count": ["batch", 1]}
    inputs = [tensor(name, np.int64, *dims) for name, dims in states.items()]
    outputs = [tensor(f"new_{name}", np.int64, *dims) for name, dims in states.items()]
    found = "flat"
    if growing:
        nodes += [
            op("ReduceMin", "flat -> name", axes=[1], keepdims=1),
            op("Slice", "growing keep end axis1 -> kept"),
            op("Tile", "name add -> names_of_step"),
            op("Concat", "kept names_of_step -> new_growing", axis=1),
            op("Concat", "flat new_growing -> found", axis=1),
        ]
        inputs.append(tensor("growing", np.int64, "batch", "length"))
        outputs.append(tensor("new_growing", np.int64, "batch", "new_length"))
        found = "found"
    nodes += [
        op("ReduceMin", f"{found} -> least", axes=[1], keepdims=1),
        op("ReduceMax", f"{found} -> greatest", axes=[1], keepdims=1),
        op("Concat", "least greatest new_count -> Y", axis=1),
    ]
    return graphs.model(
        *nodes,
        inputs=[tensor("X", np.int64, "batch", 1), *inputs],
        outputs=[tensor("Y", np.int64, "batch", 3), *outputs],
        constants={name: np.array(value) for name, value in constants.items()},
    )


def write(models: list[Model], repository: Path) -> None:
    for model in models:
        folder = repository / model.name / "1"
        folder.mkdir(parents=True)
        (folder.parent / "config.pbtxt").write_text(model.config())
        (folder / "model.onnx").write_bytes(model.graph().SerializeToString())


def build() -> None:
    """Builds the program that is the clients; Go caches it."""
    subprocess.run(["go", "-C", str(ROOT / "internal" / "bench"), "build", "-o", str(SOAK), "./soak"], check=True)


@dataclass(frozen=True)
class Load:
    """What the clients do."""

    minutes: float = 10
    steps: int = 0  # end earlier, after this number of requests; 0: only by time
    clients: int = 1000  # of each model
    streams: int = 4
    breaks: float = 0  # seconds after which a stream is broken off, or so; 0: never
    seed: int = 1

    @property
    def exit_codes(self) -> tuple[int, ...]:
        """How the server may end: in order, with all models unloaded, which a request that was never released prevents.

        tritonserver 2.51 itself, whatever the backend, never releases some of the requests that are on the way when their
        stream is broken off; then it ends with 1 when its exit timeout is over.
        """
        return (0, 1) if self.breaks > 0 else (0,)

    def command(self, url: str) -> list[str]:
        """The program that is the clients, for the server's gRPC service there."""
        return [
            str(SOAK), f"-url={url}", f"-models={','.join(model.name for model in MODELS)}", f"-idle={IDLE_SECONDS}s",
            f"-duration={self.minutes * 60}s", f"-steps={self.steps}", f"-clients={self.clients}",
            f"-streams={self.streams}", f"-breaks={self.breaks}s", f"-seed={self.seed}",
        ]  # fmt: skip


def soak(server: TritonServer, load: Load, checker: Checker, every: float = 5) -> list[str]:
    """Soaks a server of the models, with a line of report every few seconds; returns what is wrong."""
    report = Report(breaks=load.breaks > 0)
    report.header()
    with subprocess.Popen(load.command(server.grpc_url), stdout=subprocess.PIPE) as clients:
        try:
            watch(server, clients.stdout.fileno(), checker, report, every)
        except BaseException:
            clients.kill()
            raise
    faults = report.verdict(checker.seconds)
    if checker.reader.rest:
        faults.append("the last record of the clients is not whole")
    if clients.returncode != 0:
        faults.append(f"the clients ended with code {clients.returncode}")
    return faults


def watch(server: TritonServer, records: int, checker: Checker, report: Report, every: float) -> None:
    """Checks and reports until the records end, which are read from that file descriptor."""
    began = time.monotonic()
    due = began + every
    more = True
    while more:
        ready, _, _ = select.select([records], [], [], max(0, due - time.monotonic()))
        if ready:
            piece = os.read(records, 1 << 20)
            checker.take(piece)
            more = piece != b""
        if time.monotonic() >= due or not more:
            report.add(time.monotonic() - began, checker.take_away(), Process.read(server.pid))
            due += every


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="go run build.go soak"
    )
    add, default = parser.add_argument, "(default: %(default)s)"
    add("--minutes", type=float, default=Load.minutes, metavar="N", help=f"how long to soak {default}")
    add("--steps", type=int, default=Load.steps, metavar="N", help="end earlier, after this number of requests")
    add("--clients", type=int, default=Load.clients, metavar="N", help=f"clients of each of the models {default}")
    add("--streams", type=int, default=Load.streams, metavar="N", help=f"gRPC streams for the clients {default}")
    add("--every", type=float, default=5, metavar="S", help=f"seconds between lines of the report {default}")
    add("--breaks", type=float, default=Load.breaks, metavar="S",
        help="also break each stream about every S seconds; memory is not checked then (default: never)")  # fmt: skip
    add("--seed", type=int, default=Load.seed, metavar="N", help=f"random seed {default}")
    add("--schedulers", nargs="+", choices=SCHEDULERS, default=list(SCHEDULERS), metavar="NAME",
        help="schedulers of the models, which take turns; the seed says who begins (default: oldest direct free)")  # fmt: skip
    add("--models", type=int, default=0, metavar="N",
        help="instead: serve N random models, one after the other, and compare all answers with ONNX Runtime")  # fmt: skip
    add("--only", type=int, metavar="I", help="of these models, serve only number I")
    add("--told", action="store_true", help="set batch_axes for each of these models")
    arguments = vars(parser.parse_args())
    names = ("every", "models", "only", "told", "schedulers")
    every, models, only, told, schedulers = (arguments.pop(name) for name in names)
    load = Load(**arguments)
    exit_on_sigterm()
    if models > 0:
        return modelsoak.soak(models, load.seed, only, told)
    build()
    served = under(schedulers, load.seed)
    checker = Checker([model.rules() for model in served])
    with tempfile.TemporaryDirectory(prefix="soak-") as repository:
        write(served, Path(repository))
        with TritonServer(Path(repository), options=OPTIONS) as server:
            print(f"{', '.join(rules.model for rules in checker.models)}; {load.clients} clients each")
            print(f"the server's log is {server.log}", flush=True)
            faults = soak(server, load, checker, every)
        if server.exit_code not in load.exit_codes:
            faults.append(f"the server ended with code {server.exit_code}\n{server.log_tail()}")
    print(f"FAILED: {'; '.join(faults)}" if faults else "PASSED")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
