"""A store that is down, hung, slow, full or empty again: requests are served as before."""

import contextlib
import signal
import statistics
import time
from collections.abc import Callable, Iterator

from . import loader
from .cluster import Cluster
from .findings import Finding, none, say
from .model import Model
from .slowstore import SlowConnection

# Of 16 KiB, so that what is saved is no trifle: 400 requests/s, of which every fifth is saved, are 1.3 MB/s.
MODEL = Model("served", names=2048, parameters={"state_store": "env", "checkpoint": "steps=5", "store_timeout": "500"})
RATE, SEQUENCES = 400, 64

LIMIT = 1.10  # times the p99 without a fault


def store_faults(rounds: int, seconds: float) -> list[Finding]:
    """In each round every fault is compared with a run without one, next to it. Found is the median of the rounds' ratios."""
    loader.build()
    with contextlib.ExitStack() as stack:
        # The cluster's own store is the one behind the slow connection.
        cluster = Cluster([MODEL], servers=1, proxy=None)
        slow = stack.enter_context(SlowConnection(cluster.store.port))
        cluster.servers[0].env["STATEFUL_STORE_URL"] = f"valkey://127.0.0.1:{slow.port}/0"
        stack.enter_context(cluster)
        return measure(cluster, slow, rounds, seconds)


def measure(cluster: Cluster, slow: SlowConnection, rounds: int, seconds: float) -> list[Finding]:
    server = cluster.servers[0]
    ratios: dict[str, list[float]] = {name: [] for name in FAULTS}
    undisturbed, errors = [], 0
    load = lambda: loader.load(server, MODEL.name, seconds=seconds, sequences=SEQUENCES, rate=RATE)
    load()  # the first run after a start is slower
    for number in range(rounds):
        before = load()
        for name, fault in FAULTS.items():
            with fault(cluster, slow):
                during = load()
            after = load()  # the store works again, and what was not saved is
            ratios[name].append(during.p99 / statistics.mean([before.p99, after.p99]))
            undisturbed += [before.p99 / after.p99, after.p99 / before.p99]
            errors += before.errors + during.errors
            before = after
        say(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.2f}" for name, values in ratios.items()))
    noise = noise_of(undisturbed, rounds)
    found = [
        Finding(f"p99 with the store {name}, over undisturbed", f"{statistics.median(values):.2f}",
            f"at most {LIMIT:.2f}, with noise {LIMIT + noise:.2f}", statistics.median(values) <= LIMIT + noise)
        for name, values in ratios.items()
    ]  # fmt: skip
    return [*found, none("requests that failed", errors)]


def noise_of(ratios: list[float], rounds: int) -> float:
    """By how much the median of so many ratios of undisturbed runs differs from 1: two standard errors of a median."""
    if len(ratios) < 3:
        return 0.5
    return 2 * 1.25 * statistics.stdev(ratios) / rounds**0.5


Fault = Callable[[Cluster, SlowConnection], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def nothing(cluster: Cluster, slow: SlowConnection) -> Iterator[None]:
    """To see what the comparison itself is worth."""
    yield


@contextlib.contextmanager
def killed(cluster: Cluster, slow: SlowConnection) -> Iterator[None]:
    cluster.store.stop()
    yield
    cluster.store.start()


@contextlib.contextmanager
def hung(cluster: Cluster, slow: SlowConnection) -> Iterator[None]:
    cluster.store.send(signal.SIGSTOP)
    yield
    cluster.store.send(signal.SIGCONT)


@contextlib.contextmanager
def late(cluster: Cluster, slow: SlowConnection) -> Iterator[None]:
    slow.delay = 1.0
    yield
    slow.delay = 0.0


@contextlib.contextmanager
def full(cluster: Cluster, slow: SlowConnection) -> Iterator[None]:
    """Every write is refused. Nothing may be evicted instead."""
    with cluster.store.client() as client:
        client.config_set("maxmemory", "1mb")
        yield
        client.config_set("maxmemory", "0")


@contextlib.contextmanager
def emptied(cluster: Cluster, slow: SlowConnection) -> Iterator[None]:
    """Restarted without its data, under load."""
    cluster.store.stop()
    time.sleep(0.2)
    cluster.store.start()
    yield


FAULTS: dict[str, Fault] = {
    "as ever": nothing, "killed": killed, "hung": hung, "1 s late": late, "full": full, "restarted empty": emptied,
}  # fmt: skip
