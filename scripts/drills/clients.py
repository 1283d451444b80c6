"""Clients of the drills' models, which check every answer. Each sequence has a name, and a client one sequence after the other."""

import collections
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferResult
from tritonclient.utils import InferenceServerException

from tritonstateful_client import AnswerLost, Retry, Sequence, SequenceError, connect
from tritonstateful_client.request import HEADER, new_id, new_key

from .model import hashed, request

_names = itertools.count(1)

# What a client of a drill does about failures: servers are back after some seconds.
PATIENT = Retry(attempts=80, delay=0.05, longest=0.5)
CLIENTS_A_CHANNEL = 25


@dataclass
class Tally:
    """What clients saw. Each client has its own; sum() adds them up."""

    answers: int = 0
    foreign: int = 0  # values of another sequence
    wrong: int = 0  # values of other steps
    recoveries: int = 0
    answers_lost: int = 0  # AnswerLost
    broken: collections.Counter[str] = field(default_factory=collections.Counter)  # sequences that ended early, by error
    untrue: int = 0  # a state older than a saved_step that was announced
    lost_steps: list[int] = field(default_factory=list)  # by each resumption without replay
    lost_seconds: list[float] = field(default_factory=list)  # between the first and the last of these steps
    seconds: list[float] = field(default_factory=list)  # from request to answer

    def check(self, result: InferResult, name: int, steps: int, hash: int) -> None:
        least, greatest, count, found = (int(value) for value in result.as_numpy("Y")[0])
        self.answers += 1
        if least != name or greatest != name:
            self.foreign += 1
        elif (count, found) != (steps, hash):
            self.wrong += 1


def sum_up(tallies: list[Tally]) -> Tally:
    all = Tally()
    for each in tallies:
        for name, value in vars(each).items():
            setattr(all, name, getattr(all, name) + value)
    return all


@dataclass(frozen=True)
class Load:
    """steps of a sequence at most, and seconds between two of them on average."""

    steps: int = 60
    pause: float = 0.25
    attempt_timeout: float = 5.0


Body = Callable[[InferenceServerClient, str, Load, Tally, threading.Event, random.Random], None]


class Clients:
    """Threads that run clients until they are told to stop. tally is what they have seen."""

    def __init__(self, address: str, models: list[str], count: int, load: Load, body: Body, seed: int = 1):
        self._ended = threading.Event()
        self._tallies = [Tally() for _ in range(count)]
        self._failures: list[BaseException] = []
        self._connections: list[InferenceServerClient] = []
        self._threads = []
        for number, tally in enumerate(self._tallies):
            if number % CLIENTS_A_CHANNEL == 0:
                self._connections += connect(address)
            arguments = (
                self._connections[-1],
                models[number % len(models)],
                load,
                tally,
                self._ended,
                random.Random(seed + number),
            )
            self._threads.append(threading.Thread(target=self._run, args=(body, arguments), daemon=True))

    def _run(self, body: Body, arguments: tuple) -> None:
        try:
            while not self._ended.is_set():
                body(*arguments)
        except BaseException as failure:
            self._failures.append(failure)

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)
        for connection in self._connections:
            connection.close()
        if self._failures and exception[0] is None:
            raise self._failures[0]

    @property
    def tally(self) -> Tally:
        return sum_up(self._tallies)


def replaying(
    client: InferenceServerClient, model: str, load: Load, tally: Tally, ended: threading.Event, rng: random.Random
) -> None:
    """One sequence with the client of users: it must notice nothing."""
    name, hash = next(_names), 0
    length = rng.randint(1, load.steps)
    sequence = Sequence(client, model, retry=PATIENT, attempt_timeout=load.attempt_timeout)
    try:
        for step in range(length):
            value = rng.getrandbits(40)
            hash = hashed(hash, value)
            began = time.monotonic()
            try:
                result = sequence.infer(request(name, value), end=step == length - 1 or ended.is_set())
                tally.check(result, name, step + 1, hash)
            except AnswerLost:
                tally.answers_lost += 1
            tally.seconds.append(time.monotonic() - began)
            if ended.is_set():
                break
            ended.wait(load.pause * rng.uniform(0.5, 1.5))
    except (SequenceError, InferenceServerException) as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        tally.broken[f"{type(error).__name__}: {error}{cause}"] += 1
    tally.recoveries += sequence.recoveries


def plain(
    client: InferenceServerClient, model: str, load: Load, tally: Tally, ended: threading.Event, rng: random.Random
) -> None:
    """One sequence without replay: after a loss it goes on with what was saved, which must be what was announced."""
    name, key, correlation = next(_names), new_key(), new_id()
    hashes, times, saved = [0], [0.0], 0  # after each step

    def send(value: int, *, start: bool = False, end: bool = False, **parameters) -> tuple[InferResult, int]:
        tensor = InferInput("X", [1, 2], "INT64").set_data_from_numpy(request(name, value)["X"])
        result = client.infer(
            model, [tensor], sequence_id=correlation, sequence_start=start, sequence_end=end, headers={HEADER: key},
            parameters=parameters, client_timeout=load.attempt_timeout,
        )  # fmt: skip
        return result, result.get_response().parameters["stateful_step"].int64_param

    for step in range(rng.randint(1, load.steps)):
        value = rng.getrandbits(40)
        end = ended.is_set()
        try:
            if step == 0:
                result, done = send(value, start=True, stateful_key=key)
            else:
                result, done = send(value, end=end, stateful_step=len(hashes) - 1)
        except InferenceServerException:
            if end:
                return
            sent = [value]  # and maybe done, without an answer
            while True:
                if ended.wait(0.2 if len(sent) > 1 else 0):
                    return
                value = rng.getrandbits(40)
                try:
                    result, done = send(value, start=True, stateful_key=key, stateful_resume="try")
                    break
                except InferenceServerException:
                    sent.append(value)
            base, unanswered = _history(hashes, sent, value, done, int(result.as_numpy("Y")[0][3]))
            _note_loss(tally, hashes, times, base, saved)
            for each in unanswered:
                hashes.append(hashed(hashes[-1], each))
                times.append(time.monotonic())
        hashes.append(hashed(hashes[-1], value))
        times.append(time.monotonic())
        tally.check(result, name, done, hashes[-1])
        saved = result.get_response().parameters["stateful_saved_step"].int64_param
        if end:
            return
        ended.wait(load.pause * rng.uniform(0.5, 1.5))


def _history(hashes: list[int], sent: list[int], value: int, done: int, found: int) -> tuple[int, tuple[int, ...]]:
    """How many of the known steps a sequence that goes on has kept, and which values without an answer it has got since.

    Requests without an answer may have been done and saved. If no history fits, the answer is wrong as it is.
    """
    for unanswered in itertools.chain.from_iterable(itertools.combinations(sent, count) for count in range(3)):
        base = done - 1 - len(unanswered)
        if not 0 <= base < len(hashes):
            continue
        hash = hashes[base]
        for each in (*unanswered, value):
            hash = hashed(hash, each)
        if hash == found:
            return base, unanswered
    return min(max(done - 1, 0), len(hashes) - 1), ()


def _note_loss(tally: Tally, hashes: list[int], times: list[float], resumed: int, saved: int) -> None:
    """The sequence goes on after that number of steps; the others are lost."""
    tally.recoveries += 1
    lost = len(hashes) - 1 - resumed
    tally.untrue += resumed < saved
    tally.lost_steps.append(lost)
    tally.lost_seconds.append(times[-1] - times[resumed + 1] if lost > 0 else 0.0)
    del hashes[resumed + 1 :], times[resumed + 1 :]


def percentile(seconds: list[float], percent: float) -> float:
    return float(np.percentile(seconds, percent)) if seconds else 0.0
