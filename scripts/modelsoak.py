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

from tritonclient.grpc import InferenceServerClient

from randomcase import random_case
from servedcase import Case
from soakreport import Process
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


class Trials:
    """Tries models on servers, some at a time.

    make     the case of a number
    folder   for repositories
    threads  how many models are tried at the same time
    tell     called after each model
    """

    def __init__(
        self, make: Callable[[int], Case], folder: Path, threads: int = 2,
        tell: Callable[[TritonServer, Tally], None] = lambda server, tally: None,
    ):  # fmt: skip
        self.make, self.folder, self.threads, self.tell = make, folder, threads, tell
        self.tally = Tally()
        self._lock = threading.Lock()
        self._suspects: list[int] = []  # tried when the server ended
        self._interrupted = False

    def run(self, indices: Iterable[int]) -> Tally:
        for some in portions(iter(indices), MODELS_A_SERVER):
            while some:
                some = self._on_one_server(some, self.threads)
        return self.tally

    def _on_one_server(self, some: list[int], threads: int) -> list[int]:
        """Returns those that are left when the server ends before it is told to."""
        numbers = iter(some)
        repository = Path(tempfile.mkdtemp(dir=self.folder))
        with TritonServer(repository, explicit=True, options=OPTIONS) as server, ThreadPoolExecutor(threads) as pool:
            try:
                for done in [pool.submit(self._work, server, numbers, threads == 1) for _ in range(threads)]:
                    done.result()
            except BaseException:
                self._interrupted = True
                raise
        while self._suspects:  # one of these has ended it
            self._on_one_server([self._suspects.pop()], 1)
        return list(numbers)

    def _work(self, server: TritonServer, numbers: Iterator[int], alone: bool) -> None:
        with InferenceServerClient(server.grpc_url) as client:
            while server.is_running() and not self._interrupted:
                with self._lock:
                    index = next(numbers, None)
                if index is None:
                    return
                case = self.make(index)
                outcome = try_case(server, client, case)
                with self._lock:
                    if outcome.verdict is Verdict.CRASH and not alone:
                        self._suspects.append(index)
                    else:
                        self.tally.add(index, case, outcome)
                    self.tell(server, self.tally)


def serve(indices: Iterable[int], make: Callable[[int], Case], folder: Path) -> Tally:
    """Tries the models of these numbers. The folder is for repositories."""
    return Trials(make, folder).run(indices)


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


def keep(seed: int, failures: list[tuple[int, Case, Outcome]], told: bool) -> None:
    """Writes down the models that failed, each in a folder that a repository can have, and prints where."""
    for index, case, outcome in sorted(failures, key=lambda each: (list(Verdict).index(each[2].verdict), each[0])):
        folder = FAILURES / case.name
        case.write(folder)
        text = story(seed, index, case, outcome, told)
        (folder / "seen.txt").write_text(text)
        print(f"\n{folder.relative_to(ROOT)}\n{text[:1500].rstrip()}")


def story(seed: int, index: int, case: Case, outcome: Outcome, told: bool = False) -> str:
    """What happened to a model, and how to see it again."""
    again = f"go run build.go soak --models 1 --seed {seed} --only {index}{' --told' * told}"
    return f"{outcome.verdict.value.upper()}: {case.about}\n  {outcome.seen.strip()}\n  again: {again}\n"


def soak(models: int, seed: int, only: int | None = None, told: bool = False) -> int:
    """Serves the first models of a seed, or one of them; returns the exit code.

    told: every configuration says where the batch is, so that whatever fails does not come from looking for it.
    """
    numbers = range(models) if only is None else [only]
    with tempfile.TemporaryDirectory(prefix="models-") as folder:
        trials = Trials(lambda index: random_case(seed, index, told), Path(folder), tell=Progress(len(numbers)))
        try:
            tally = trials.run(numbers)
        finally:
            keep(seed, trials.tally.failures, told)
    if only is not None:
        print(random_case(seed, only, told).about)
    print(f"\n{len(numbers)} models of seed {seed}: {tally}")
    failed = len(numbers) - sum(verdict.good for verdict in tally.verdicts.values())
    print(f"FAILED: {failed} models" if failed else "PASSED")
    return 1 if failed else 0
