"""Serves thousands of random models in a few server processes, and compares every answer with ONNX Runtime.

A model (randomcase.py) is loaded, used by several sequences at a time, judged (trial.py) and unloaded, and so the next.
What is found wrong is written to a folder, with its configuration and what was seen; the same seed makes the same
models, and --only N serves the one of that number again. go run build.go soak --models N runs it.
"""

import collections
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from randomcase import random_case
from servedcase import Case
from soakreport import Process
from tritonclient.grpc import InferenceServerClient
from trial import Outcome, Verdict, try_case
from tritonserver import NO_METRICS, ROOT, TritonServer

FAILURES = ROOT / "build" / "soak"
MODELS_A_SERVER = 1000
OPTIONS = [NO_METRICS, "--log-info=false", "--log-warning=false"]


@dataclass
class Tally:
    """What became of the models."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    failures: list[tuple[int, Case, Outcome]] = field(default_factory=list, repr=False)
    batched: int = 0

    def add(self, index: int, case: Case, outcome: Outcome) -> None:
        self.verdicts[index] = outcome.verdict
        self.batched += outcome.batched
        if not outcome.verdict.good:
            self.failures.append((index, case, outcome))

    def __str__(self) -> str:
        of = collections.Counter(self.verdicts.values())
        counts = [f"{of[verdict]} {verdict.value}" for verdict in Verdict if of[verdict]]
        return f"{'; '.join(counts) or 'nothing yet'}; requests shared a batch in {self.batched}"


def serve(
    indices: Iterable[int], make: Callable[[int], Case], folder: Path, *, threads: int = 2,
    tell: Callable[[TritonServer, Tally], None] = lambda server, tally: None,
) -> Tally:  # fmt: skip
    """Tries the models of these numbers, some at a time. The folder is for repositories."""
    tally, lock, left = Tally(), threading.Lock(), iter(indices)
    suspects: list[int] = []
    threads_of: dict[TritonServer, int] = {}

    def work(server: TritonServer, numbers: Iterator[int]) -> None:
        with InferenceServerClient(server.grpc_url) as client:
            while server.is_running():
                with lock:
                    index = next(numbers, None)
                if index is None:
                    return
                case = make(index)
                outcome = try_case(server, client, case)
                with lock:
                    if outcome.verdict is Verdict.CRASH and threads_of[server] > 1:
                        suspects.append(index)
                    else:
                        tally.add(index, case, outcome)
                    tell(server, tally)

    def run(some: list[int], side_by_side: int) -> list[int]:
        """Tries these on one server, and returns those that are left when it ends before it is told to."""
        repository = Path(tempfile.mkdtemp(dir=folder))
        numbers = iter(some)
        with TritonServer(repository, explicit=True, options=OPTIONS) as server:
            threads_of[server] = side_by_side
            with ThreadPoolExecutor(side_by_side) as pool:
                for done in [pool.submit(work, server, numbers) for _ in range(side_by_side)]:
                    done.result()
        while suspects:  # one of these has ended it
            run([suspects.pop()], 1)
        return list(numbers)

    for some in portions(left, MODELS_A_SERVER):
        while some:
            some = run(some, threads)
    return tally


def portions(numbers: Iterator[int], size: int) -> Iterator[list[int]]:
    while some := list(itertools.islice(numbers, size)):
        yield some


class Progress:
    """A line every few seconds."""

    def __init__(self, models: int, every: float = 5):
        self.models, self.every = models, every
        self.began = time.monotonic()
        self.due = self.began + every

    def __call__(self, server: TritonServer, tally: Tally) -> None:
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + self.every
        memory = Process.read(server.pid).mib if server.is_running() else 0
        done = len(tally.verdicts)
        seconds = now - self.began
        print(f"{done:6} of {self.models} models, {seconds:5.0f} s, server {memory:5.0f} MiB: {tally}", flush=True)


def keep(seed: int, failures: list[tuple[int, Case, Outcome]]) -> None:
    """Writes down the models that failed, each in a folder that a repository can have, and tells of them."""
    for index, case, outcome in sorted(failures, key=lambda each: (list(Verdict).index(each[2].verdict), each[0])):
        folder = FAILURES / case.name
        case.write(folder)
        told = story(seed, index, case, outcome)
        (folder / "seen.txt").write_text(told)
        print(f"\n{folder.relative_to(ROOT)}\n{told[:1500].rstrip()}")


def story(seed: int, index: int, case: Case, outcome: Outcome) -> str:
    """What happened to a model, and how to see it again."""
    again = f"go run build.go soak --models 1 --seed {seed} --only {index}"
    return f"{outcome.verdict.value.upper()}: {case.about}\n  {outcome.seen}\n  again: {again}\n"


def soak(models: int, seed: int, only: int | None = None, told: bool = False) -> int:
    """Serves the first so many models of a seed, or one of them; returns the exit code.

    told: every configuration says where the batch is, so that whatever fails does not come from looking for it.
    """
    numbers = range(models) if only is None else [only]
    with tempfile.TemporaryDirectory(prefix="models-") as folder:
        tally = serve(numbers, lambda index: random_case(seed, index, told), Path(folder), tell=Progress(len(numbers)))
    keep(seed, tally.failures)
    if only is not None:
        print(random_case(seed, only).about)
    print(f"\n{len(numbers)} models of seed {seed}: {tally}")
    failed = len(numbers) - sum(verdict.good for verdict in tally.verdicts.values())
    print(f"FAILED: {failed} models" if failed else "PASSED")
    return 1 if failed else 0

