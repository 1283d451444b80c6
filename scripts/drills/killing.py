"""Servers that are killed under load: nothing is foreign, nothing is wrong, and what was said to be saved is."""

import random
import time

from .clients import Clients, Load, Tally, percentile, plain, replaying
from .cluster import Cluster
from .findings import Finding, at_least, at_most, none, say
from .model import Model
from .parts import Envoy, Part

INTERVAL = 0.5  # seconds
STEPS = 5
# A state is taken some milliseconds after it is due, and a write takes time, all the more on a machine that is busy.
SLACK = 0.5

STORE = {"state_store": "env"}
MODELS = [
    Model("by_steps", parameters=STORE | {"checkpoint": f"steps={STEPS}"}),
    Model("by_time", parameters=STORE | {"checkpoint": f"interval={round(INTERVAL * 1000)}"}),
]


def kill(
    minutes: float, sequences: int, every: float, seed: int = 1, proxy: type[Part] = Envoy, patience: int = 1
) -> list[Finding]:
    """A random server is killed every so many seconds, and started again. Most clients replay, a fifth do not.

    patience multiplies what may be lost without replay: states are saved later on a machine that does much else.
    """
    few = max(2, sequences // 5)
    load, rng = Load(), random.Random(seed)
    names = [model.name for model in MODELS]
    kills = 0
    with Cluster(MODELS, proxy=proxy) as cluster:
        with (
            Clients(cluster.address, names, sequences - few, load, replaying, seed) as exact,
            Clients(cluster.address, ["by_steps"], few // 2, load, plain, seed + 10_000) as by_steps,
            Clients(cluster.address, ["by_time"], few - few // 2, load, plain, seed + 20_000) as by_time,
        ):
            end = time.monotonic() + minutes * 60
            while (wait := min(every, end - time.monotonic())) > 0:
                time.sleep(wait)
                cluster.restart(rng.choice(cluster.servers))
                kills += 1
                if kills % 6 == 0:
                    say(f"{kills} kills, {exact.tally.answers:,} answers, {exact.tally.recoveries:,} recoveries")
            time.sleep(min(every, 3))
        return [
            at_least("kills", kills, 1),
            *exactly(exact.tally),
            *without_replay(by_steps.tally, by_time.tally, patience),
        ]


def exactly(tally: Tally) -> list[Finding]:
    """What clients that replay may see: right answers only."""
    return [
        at_least("with replay: recoveries", tally.recoveries, 1),
        none("with replay: foreign values", tally.foreign, tally.answers),
        none("with replay: wrong values", tally.wrong, tally.answers),
        Finding("with replay: lost sequences", broken(tally), "0", not tally.broken),
        none("with replay: lost answers", tally.answers_lost, tally.answers),
        Finding("with replay: latency p50, p99, most",
            " ".join(f"{percentile(tally.seconds, at) * 1e3:.0f}" for at in (50, 99, 100)) + " ms"),
    ]  # fmt: skip


def broken(tally: Tally) -> str:
    texts = [f"{count}: {text[:200]}" for text, count in tally.broken.most_common(3)]
    return "; ".join([f"{tally.broken.total()}", *texts])


def without_replay(by_steps: Tally, by_time: Tally, patience: int) -> list[Finding]:
    """At most one checkpoint's steps are lost, and saved_step is true."""
    both = [by_steps, by_time]
    return [
        at_least("without replay: resumptions", sum(each.recoveries for each in both), 1),
        none("without replay: foreign or wrong values", sum(each.foreign + each.wrong for each in both)),
        Finding("without replay: answers of a server that was cut off", f"{sum(each.stale for each in both):,}"),
        none("without replay: saved_step untrue", sum(each.untrue for each in both)),
        at_most(f"without replay: most steps lost, steps={STEPS}", max(by_steps.lost_steps, default=0), STEPS * patience, "steps", 0),
        at_most(f"without replay: most time lost, interval={INTERVAL * 1e3:.0f}", max(by_time.lost_seconds, default=0),
            (INTERVAL + SLACK) * patience, "s", 2),
    ]  # fmt: skip
