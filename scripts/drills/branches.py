"""What a client that does not replay knows of its sequence, and which answers can be right.

Such a client goes on with new values where its sequence was saved, and gives up the steps after that. So what a sequence has
been is a tree, and a server that was cut off can have another branch of it: until its next save it does not know that another
server has taken over, and answers (docs/sequences-outlive-the-server.md). A number of steps does not tell branches apart.
Requests without an answer may have been done, at any time.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from .model import hashed

# How many requests without an answer may have been done between two answers.
MOST_UNANSWERED = 2


@dataclass(eq=False)
class State:
    """What the sequence was after a step."""

    hash: int = 0
    before: "State | None" = None
    steps: int = 0
    time: float = field(default_factory=time.monotonic)

    def past(self) -> Iterator["State"]:
        """This state and those before it, the newest first."""
        state: State | None = self
        while state:
            yield state
            state = state.before

    def after(self, value: int) -> "State":
        return State(hashed(self.hash, value), self, self.steps + 1)


class Branches:
    """All that a sequence can be, as far as its client knows. newest is the state of the last answer."""

    def __init__(self) -> None:
        self.newest = State()
        self._all = [self.newest]
        self._unanswered: list[int] = []

    def no_answer(self, value: int) -> None:
        """A request with this value may have been done, or may be done later."""
        self._unanswered.append(value)

    def answer(self, value: int, steps: int, hash: int) -> State | None:
        """Takes in the answer to a request, and returns the state that the sequence has gone on from; None if it is wrong."""
        for count in range(MOST_UNANSWERED + 1):
            for base in self._candidates(steps - 1 - count):
                for done in itertools.permutations(self._unanswered, count):
                    state, added = base, []
                    for each in (*done, value):
                        state = state.after(each)
                        added.append(state)
                    if state.hash == hash:
                        self.newest = state
                        self._all += added
                        for each in done:
                            self._unanswered.remove(each)
                        return base
        return None

    def _candidates(self, steps: int) -> list[State]:
        """The known states with that many steps, the newest branch first."""
        newest = set(self.newest.past())
        return sorted((state for state in self._all if state.steps == steps), key=lambda state: state not in newest)


def given_up(before: State, base: State) -> list[State]:
    """The states that a sequence has lost that goes on from base, the newest first."""
    kept = set(base.past())
    return list(itertools.takewhile(lambda state: state not in kept, before.past()))
