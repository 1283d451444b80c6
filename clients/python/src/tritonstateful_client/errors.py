"""The errors of a sequence, and what the errors of a server mean for it.

An error that a server gives for a request itself, such as a wrong shape, is passed on as tritonclient's
InferenceServerException. The errors here are about the sequence as a whole.
"""

import enum
import re
from dataclasses import dataclass

from tritonclient.utils import InferenceServerException


class SequenceError(Exception):
    """A sequence cannot go on as it should. The base class of the errors of this package."""


class ServersLost(SequenceError):
    """No server could continue the sequence in the attempts allowed. The last server's error is the cause.

    The sequence can still be used: the next request tries again.
    """


class StateLost(SequenceError):
    """The saved state is older than the requests that are still kept, or there is none: the sequence has to begin anew.

    resumed_step  steps that the state contains which the server has; 0 if it has none
    kept_step     the first step of which the request is still kept
    """

    def __init__(self, resumed_step: int, kept_step: int):
        super().__init__(
            f"the server can only continue at step {resumed_step}, and requests before step {kept_step} are no longer kept"
        )
        self.resumed_step = resumed_step
        self.kept_step = kept_step


class AnswerLost(SequenceError):
    """A step was done, but its answer was lost, and no earlier state is left to repeat it: the store has lost what it had.

    step  the step without an answer. The next request continues after it.
    """

    def __init__(self, step: int):
        super().__init__(f"step {step} was done, but its answer was lost with the server")
        self.step = step


class WrongStep(SequenceError):
    """A server's answer is not that of the step it was asked for: another client uses the same key."""


class Unsupported(SequenceError):
    """The server does not answer with stateful_step: its model has no stateful backend, or one that is too old."""


class SequenceEnded(SequenceError):
    """The sequence has ended or its state is lost, so it takes no more requests."""


class Kind(enum.Enum):
    """What an error of a server means for the sequence."""

    STEP = "the server expects another step"
    SEQUENCE = "the server has no state of the sequence"
    SERVER = "the server is gone, going or full: try another"
    REQUEST = "the request itself is wrong"


@dataclass(frozen=True)
class Failure:
    """An error of a server, and what it means. expected is the step that the server expects, for Kind.STEP only."""

    error: InferenceServerException
    kind: Kind
    expected: int = 0


# A stream's errors have no status code, so the texts decide wherever they can.
_EXPECTED = re.compile(r"expected step (\d+)")
_SEQUENCE = re.compile(
    r"must specify the START flag"  # Triton does not know the sequence
    r"|begin it again with a START request"  # the backend lost its state
    r"|no such sequence is known"
    r"|taken over"
)
_SERVER = re.compile(
    r"too many simultaneous sequences"
    r"|unknown model|not ready|stopped accepting|shutting down|is stopping|is unavailable"
    r"|[Cc]onnection (reset|refused)|[Ss]ocket closed|[Ss]tream removed|RST_STREAM|GOAWAY|upstream"
)
_CODES = {"StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED"}


def classify(error: InferenceServerException) -> Failure:
    """Says what an error means."""
    text, code = str(error.message() or ""), error.status()
    if found := _EXPECTED.search(text):
        return Failure(error, Kind.STEP, int(found[1]))
    if _SEQUENCE.search(text):
        return Failure(error, Kind.SEQUENCE)
    if code in _CODES or _SERVER.search(text):
        return Failure(error, Kind.SERVER)
    return Failure(error, Kind.REQUEST)
