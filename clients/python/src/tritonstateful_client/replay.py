"""How a sequence goes on when its server does not: which request is sent next, and with which flags.

Nothing here sends or waits. Replay.infer is a generator of what has to be done: a Call is answered by send() with the
server's answer or error, a Pause with None. Sequence and AsyncSequence do it, each in its own way.
"""

import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from .errors import AnswerLost, Failure, Kind, SequenceEnded, ServersLost, StateLost, Unsupported, WrongStep, classify


@dataclass(frozen=True)
class Retry:
    """How long a sequence tries to go on.

    attempts  failures of one step before it gives up
    delay     seconds before the first repetition at the same server; doubled for each further one, with jitter
    longest   seconds that it waits at most
    """

    attempts: int = 20
    delay: float = 0.05
    longest: float = 1.0

    def seconds(self, failures: int) -> float:
        """The pause after that number of failures, at least 1."""
        return min(self.longest, self.delay * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1)


@dataclass(frozen=True)
class Request:
    """A request of the application. It is kept until its step is saved."""

    step: int
    inputs: list[InferInput]
    outputs: list[InferRequestedOutput] | None
    end: bool
    save: bool
    bytes: int


@dataclass(frozen=True)
class Call:
    """A request to be sent to one of the servers. start and resume are the flags to send it with."""

    request: Request
    server: int
    start: bool
    resume: bool


@dataclass(frozen=True)
class Pause:
    """Seconds to wait before the next call."""

    seconds: float


Action: TypeAlias = Call | Pause
Outcome: TypeAlias = InferResult | InferenceServerException | None
Steps: TypeAlias = Generator[Action, Outcome, InferResult]


@dataclass
class Replay:
    """One sequence: what is kept of it, and where it is. For one request at a time.

    servers     number of servers to choose from
    server      the one that has the sequence
    keep_bytes  of inputs that are kept at most; the oldest requests go first
    steps       steps that were answered
    saved_step  steps that are safe in the store, as the last answer said
    recoveries  how often the sequence had to be continued from a saved state
    """

    servers: int
    server: int
    retry: Retry
    keep_bytes: int
    steps: int = 0
    saved_step: int = 0
    recoveries: int = 0
    ended: bool = False
    _kept: deque[Request] = field(default_factory=deque)
    _kept_bytes: int = 0
    _saved_before: int = 0  # saved_step before it last changed
    _failures: int = 0

    @property
    def kept_step(self) -> int:
        """The first step of which the request is still kept."""
        return self._kept[0].step if self._kept else self.steps

    def infer(self, request: Request) -> Steps:
        """Has the next step done, and what it needs before. An exception leaves the sequence as it was, without that step."""
        if self.ended:
            raise SequenceEnded("the sequence has ended: begin another one")
        self._failures = 0
        outcome = yield Call(request, self.server, start=request.step == 0, resume=False)
        failure = self._failure(outcome)
        result = outcome if failure is None else (yield from self._recover(request, failure))
        assert isinstance(result, InferResult)
        self._done(request, result)
        return result

    def _recover(self, request: Request, failure: Failure) -> Steps:
        """Continues from a saved state, or from the beginning, until the request has its answer."""
        while True:
            if failure.kind is Kind.REQUEST:
                raise failure.error
            yield from self._wait(failure)
            outcome = yield from self._replay(request)
            failed = self._failure(outcome)
            if failed is None:
                self.recoveries += 1
                assert isinstance(outcome, InferResult)
                return outcome
            failure = failed

    def _wait(self, failure: Failure) -> Generator[Action, Outcome, None]:
        """Goes to the next server if this one is lost, and waits once all were tried."""
        self._failures += 1
        if self._failures >= self.retry.attempts:
            raise ServersLost(f"no server could continue the sequence in {self._failures} attempts") from failure.error
        tried = self._failures
        if failure.kind is Kind.SERVER:
            self.server = (self.server + 1) % self.servers
            tried -= self.servers - 1
        else:
            tried -= 1  # the server answers, so it can be asked at once
        if tried > 0:
            yield Pause(self.retry.seconds(tried))

    def _replay(self, request: Request) -> Generator[Action, Outcome, Outcome]:
        """Begins with the step that the server can continue at. Returns the answer to the request, or the first error."""
        at, resume = request, request.step > 0
        for _ in range(3):  # the step that we hope for, the one that it has, and the beginning
            outcome = yield Call(at, self.server, start=True, resume=resume)
            failure = self._failure(outcome)
            if failure is None or failure.kind is not Kind.STEP:
                break
            at, resume = self._from(failure.expected, request), failure.expected in range(1, request.step + 1)
        while failure is None and at is not request:
            assert isinstance(outcome, InferResult)
            self._check(at, outcome)
            at = self._request(at.step + 1, request)
            outcome = yield Call(at, self.server, start=False, resume=False)
            failure = self._failure(outcome)
        return outcome

    def _from(self, expected: int, request: Request) -> Request:
        """The request to begin with at a server that expects that step."""
        first = min(self.kept_step, request.step)
        if first <= expected <= request.step:
            return self._request(expected, request)
        if first == 0:
            return self._request(0, request)  # all is kept, so it can begin anew
        self.ended = expected < first
        if self.ended:
            raise StateLost(expected, first)
        # The answer is gone, and what the request did is not.
        self._skip(request, expected)
        raise AnswerLost(request.step)

    def _request(self, step: int, last: Request) -> Request:
        return last if step == last.step else self._kept[step - self._kept[0].step]

    def _failure(self, outcome: Outcome) -> Failure | None:
        return classify(outcome) if isinstance(outcome, InferenceServerException) else None

    def _check(self, request: Request, result: InferResult) -> None:
        """Checks that an answer is that of the request's step."""
        parameters = result.get_response().parameters
        if "stateful_step" not in parameters:
            raise Unsupported("the answer has no parameter stateful_step: the model's backend does not count steps")
        done = parameters["stateful_step"].int64_param
        if done != request.step + 1:
            self.ended = True
            raise WrongStep(f"the answer to step {request.step} says that {done} steps are done, not {request.step + 1}")
        if "stateful_saved_step" in parameters:
            self._saved(parameters["stateful_saved_step"].int64_param)

    def _saved(self, step: int) -> None:
        """Takes in how many steps are saved. The answer to the last of them can be lost, so those since the save before are kept."""
        if step > self.saved_step:
            self._saved_before = self.saved_step
        self._saved_before = min(self._saved_before, step)
        self.saved_step = step

    def _done(self, request: Request, result: InferResult) -> None:
        self._check(request, result)
        self._keep(request)
        self.steps = request.step + 1
        self._forget()
        if request.end:
            self.ended = True
            self._kept.clear()

    def _skip(self, request: Request, expected: int) -> None:
        """Goes on after a step that has no answer."""
        self._keep(request)
        self.steps = expected
        if expected != request.step + 1:
            self.ended = True
            raise WrongStep(f"the server has done {expected} steps, of which we sent {request.step + 1}")

    def _keep(self, request: Request) -> None:
        self._kept.append(request)
        self._kept_bytes += request.bytes

    def _forget(self) -> None:
        """Drops the requests that no saved state can need, and the oldest of those that are too large together."""
        while self._kept and (self._kept[0].step < self._saved_before or self._kept_bytes > self.keep_bytes):
            self._kept_bytes -= self._kept.popleft().bytes
