"""Holds every exchange of a soak against the oracles of its clients, and counts what came of them."""

import time
from collections import defaultdict

from history import Reader
from oracle import KINDS, UNCERTAIN, Oracle, Rules

MOST_FAULTS = 10  # that are shown of an interval: enough to see what is wrong, not enough to flood


class Tally:
    """What came of the requests of an interval, or of all."""

    def __init__(self):
        self.kinds = dict.fromkeys(KINDS, 0)
        self.latencies: list[int] = []  # ns; of the answered ones
        self.faults: list[str] = []

    def add(self, other: "Tally") -> None:
        """Adds the counts of an interval; not its latencies and faults, which would only grow."""
        for kind, count in other.kinds.items():
            self.kinds[kind] += count

    @property
    def total(self) -> int:
        return sum(self.kinds.values())


class Checker:
    """The oracles of all clients. The models are in the order of their numbers in the records."""

    def __init__(self, models: list[Rules]):
        self.models = models
        self.oracles = [defaultdict(lambda rules=rules: Oracle(rules)) for rules in models]  # by correlation ID
        self.reader = Reader()
        self.tally = Tally()
        self.seconds = 0.0  # of processor time that all this took

    def take(self, piece: bytes) -> None:
        """Checks the exchanges that are whole with this piece of the load's records."""
        began = time.thread_time()
        oracles, kinds, latencies = self.oracles, self.tally.kinds, self.tally.latencies
        for x in self.reader.feed(piece):
            kind, fault = oracles[x.model][x.id].settle(x)
            kinds[kind] += 1
            if kind is not UNCERTAIN:
                latencies.append(x.latency)
            if fault and len(self.tally.faults) < MOST_FAULTS:
                self.tally.faults.append(f"{self.models[x.model].model}, sequence {x.id}: {kind}: {fault}")
        self.seconds += time.thread_time() - began

    def take_away(self) -> Tally:
        """What was counted since the last time."""
        tally, self.tally = self.tally, Tally()
        return tally
