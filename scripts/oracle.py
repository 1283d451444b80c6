"""What the state of a sequence must be: the model that every answer of a soak is compared with.

The models of a soak say whose their states are: START brings a name that no other sequence has, which goes to every
element, and each answer shows the least and the greatest name that was found in the states, and how many steps they
have seen (soak.py). So an oracle, which follows one correlation ID, knows every answer beforehand, and which errors
the server may give (docs/reliability.md).
"""

from dataclasses import dataclass

from history import CANCELLED, EMPTY, END, START, Exchange

# What came of a request.
ANSWERED = "answered"
UNCERTAIN = "cancelled"
DROPPED = "dropped by Triton"
EXPIRED = "expired"
EVICTED = "evicted"
UNKNOWN = "unknown"
REPLACED = "restarted"
DISPLACED = "displaced"  # with direct, Triton gave its batch slot to another one after it had idled
REFUSED = "START was refused"
FAILED = "START failed"
FULL = "full"
BUDGET = "over the budget"
# An END that Triton gave to the backend after the START that was sent after it, unanswered, of the next sequence of
# the same ID: it ended that one. Clients who wait for the answer to END are safe.
OVERTAKEN = "END overtaken"
FORBIDDEN = "NOT ALLOWED"  # an error that should not be
FOREIGN = "FOREIGN VALUES"  # an answer from a state that is not the sequence's

KINDS = (ANSWERED, UNCERTAIN, DROPPED, EXPIRED, EVICTED, UNKNOWN, REPLACED, DISPLACED, REFUSED, FAILED, FULL, BUDGET, OVERTAKEN, FORBIDDEN,
    FOREIGN)  # fmt: skip

RIGHT = (ANSWERED, "")

# The kind of an error is that of the first of these texts that is in it.
TEXTS = (
    ("must specify the START flag", DROPPED),
    ("its state expired", EXPIRED),
    ("its state was evicted", EVICTED),
    ("no such sequence is known", UNKNOWN),
    ("because its ID began again", REPLACED),
    ("its batch slot was given to another sequence", DISPLACED),
    ("its START was refused", REFUSED),
    ("its START failed", FAILED),
    ("too many simultaneous sequences", FULL),
    ("max_state_memory_bytes", BUDGET),
)


@dataclass(frozen=True)
class Rules:
    """What a model may do with the sequences of its clients."""

    model: str
    idle: int  # max_sequence_idle_microseconds, in ns
    evicts: bool = False  # when_full is evict_lru
    budget: bool = False  # max_state_memory_bytes is given
    free: bool = False  # Triton knows nothing of sequences; an END that fails leaves its sequence
    end_silent: bool = False  # infer_end_requests is 0: END is not run; its answer is empty, also without a state


class Oracle:
    """The sequences of one correlation ID, one after the other, as their client must find them."""

    __slots__ = ("rules", "alive", "name", "steps", "slack", "ended", "doubtful", "last", "broken")

    def __init__(self, rules: Rules):
        self.rules = rules
        self.alive = False  # there is a sequence
        self.name = 0  # that its START brought
        self.steps = 0  # that were answered
        self.slack = 0  # cancelled requests since the last answer, each of which may have been a step
        self.ended = 0  # name of the sequence that an overtaken END has ended before its START was settled here
        self.doubtful = 0  # name of the sequence that an END may have ended, whose empty answer does not tell
        self.broken = False  # requests were cancelled, and Triton may cancel what is queued after them
        self.last = 0  # when the last request was sent that reached the server for sure

    def settle(self, x: Exchange) -> tuple[str, str]:
        """Takes the next exchange; returns its kind, and with FORBIDDEN and FOREIGN what is wrong."""
        if x.flags & CANCELLED:
            return self._cancelled(x)
        idle, self.last = x.sent + x.latency - self.last, x.sent  # as long as it can have idled for the server
        if x.error:
            return self._error(x, idle)
        return self._answer(x)

    def _cancelled(self, x: Exchange) -> tuple[str, str]:
        if x.flags & (START | END):
            self.alive = False  # unknown, and the client has to start again
        self.slack += 1
        self.broken = True
        return UNCERTAIN, ""

    def _answer(self, x: Exchange) -> tuple[str, str]:
        silent = bool(x.flags & END) and self.rules.end_silent
        # What waits in Triton's queue after a cancelled request of its sequence gets CANCELLED without a text, which a
        # stream shows as an empty answer (e2e/test_cancelled_queue.py sees it on the server).
        if x.flags & EMPTY and self.broken and not silent:
            self.alive = False
            return DROPPED, ""
        if not x.flags & EMPTY:
            self.broken = False
        if x.flags & START:
            self.alive, self.name, self.steps, self.slack = True, x.name, 0, 0
        if x.successor and not silent and x.least == x.greatest == x.successor and x.count == 2:
            self.alive, self.ended = False, x.successor
            return OVERTAKEN, ""
        fault = self._fault(x, silent)
        if fault:
            self.steps += 1  # as it should have been, so that one wrong answer counts once
        else:
            self.steps, self.slack = x.count, 0
        if x.flags & END or self.name == self.ended:
            self.alive = False
        if silent:
            self.doubtful = x.successor
        return (FOREIGN, fault) if fault else RIGHT

    def _fault(self, x: Exchange, silent: bool) -> str:
        """What is wrong with an answer."""
        if silent:
            return "" if x.flags & EMPTY else "END is not run, but was answered with values"
        if not self.alive:
            return f"answered with {x.least:#x}, {x.greatest:#x}, {x.count}, but the sequence has no state"
        if x.flags & EMPTY:
            return "the answer is empty"
        if not x.least == x.greatest == self.name:
            return f"the states are of {x.least:#x} to {x.greatest:#x}, the sequence is {self.name:#x}"
        if not self.steps < x.count <= self.steps + self.slack + 1:
            return f"it is step {x.count}, {self.steps} were answered before and {self.slack} cancelled"
        return ""

    def _error(self, x: Exchange, idle: int) -> tuple[str, str]:
        kind = next((kind for text, kind in TEXTS if text in x.error), FORBIDDEN)
        allowed, before = self._allows(kind, x, idle), repr(self)
        ends = x.flags & START or x.flags & END and not self.rules.free
        if ends or kind not in (BUDGET, FORBIDDEN):  # after those the state is as before
            self.alive = False
        if allowed:
            return kind, ""
        late = f"answered {idle / 1e9:.3f} s after the last answered request of {before} was sent"
        return FORBIDDEN, f"{x.error} ({_flags(x)}{late})"

    def _allows(self, kind: str, x: Exchange, idle: int) -> bool:
        """Whether the server may answer with an error of that kind."""
        if kind == BUDGET:
            return self.rules.budget
        if x.flags & START:
            return kind == FULL and not self.rules.evicts
        gone = not self.alive or idle > self.rules.idle
        if kind in (DROPPED, DISPLACED):
            return gone or self.slack > 0  # Triton may also forget a sequence after a request of it was cancelled
        if x.flags & END and self.rules.end_silent:
            return False
        if kind == EXPIRED:
            return gone
        if kind == EVICTED:
            return self.rules.evicts
        if kind == REPLACED:  # the START of the next sequence, sent unanswered after this END, needed the slot
            return x.successor != 0
        if kind == UNKNOWN:
            return not self.alive or self.name == self.doubtful and self.steps == 1
        return kind in (REFUSED, FAILED) and not self.alive

    def __repr__(self) -> str:
        if not self.alive:
            return "no sequence"
        return f"sequence {self.name:#x}, {self.steps} steps answered, {self.slack} cancelled"


def _flags(x: Exchange) -> str:
    return ("START, " if x.flags & START else "") + ("END, " if x.flags & END else "")
