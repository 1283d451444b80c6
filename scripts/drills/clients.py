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

from .branches import Branches, State, given_up
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
    stale: int = 0  # answers that go on from steps that a client without replay had given up
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
    known, saved = Branches(), 0

    def send(value: int, *, start: bool = False, end: bool = False, **parameters) -> InferResult:
        tensor = InferInput("X", [1, 2], "INT64").set_data_from_numpy(request(name, value)["X"])
        return client.infer(
            model, [tensor], sequence_id=correlation, sequence_start=start, sequence_end=end, headers={HEADER: key},
            parameters=parameters, client_timeout=load.attempt_timeout,
        )  # fmt: skip

    for step in range(rng.randint(1, load.steps)):
        value, before, resumed = rng.getrandbits(40), known.newest, False
        end = ended.is_set()
        try:
            if step == 0:
                result = send(value, start=True, stateful_key=key)
            else:
                result = send(value, end=end, stateful_step=before.steps)
        except InferenceServerException:
            if end:
                return
            resumed = True
            while True:
                known.no_answer(value)
                value = rng.getrandbits(40)
                try:
                    result = send(value, start=True, stateful_key=key, stateful_resume="try")
                    break
                except InferenceServerException:
                    if ended.wait(0.2):
                        return
        parameters = result.get_response().parameters
        done, hash = parameters["stateful_step"].int64_param, int(result.as_numpy("Y")[0][3])
        base = known.answer(value, done, hash)
        # If no history fits, the answer is none that follows the last one.
        tally.check(result, name, done, known.newest.hash if base else hashed(before.hash, value))
        if not base:
            return
        if resumed:
            _note_loss(tally, before, base, saved)
        elif base is not before:
            tally.stale += 1
        saved = parameters["stateful_saved_step"].int64_param
        if end:
            return
        ended.wait(load.pause * rng.uniform(0.5, 1.5))


def _note_loss(tally: Tally, before: State, base: State, saved: int) -> None:
    """The sequence goes on from base."""
    tally.recoveries += 1
    lost = given_up(before, base)
    tally.untrue += base.steps < saved
    tally.lost_steps.append(len(lost))
    tally.lost_seconds.append(lost[0].time - lost[-1].time if lost else 0.0)


def percentile(seconds: list[float], percent: float) -> float:
    return float(np.percentile(seconds, percent)) if seconds else 0.0
