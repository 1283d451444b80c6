"""A store that is down, hung, slow, full or empty again: requests are served as before."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np

from . import loader
from .cluster import Cluster
from .findings import Finding, none, say
from .model import Model
from .slowstore import SlowConnection

# Of 16 KiB, so that what is saved is no trifle: 400 requests/s, of which every fifth is saved, are 1.3 MB/s.
MODEL = Model("served", names=2048, parameters={"state_store": "env", "checkpoint": "steps=5", "store_timeout": "500"})
RATE, SEQUENCES = 400, 64

LIMIT = 1.10  # times the p99 without a fault
WINDOW = 1.0  # seconds: short, so that what else the machine does hits all alike


def store_faults(rounds: int) -> list[Finding]:
    """One load, during which faults come and go: p99 while there is one is compared with p99 between them."""
    loader.build()
    with contextlib.ExitStack() as stack:
        cluster = Cluster([MODEL], servers=1, proxy=None, apart=True)
        slow = stack.enter_context(SlowConnection(cluster.store.port))
        cluster.servers[0].env["STATEFUL_STORE_URL"] = f"valkey://127.0.0.1:{slow.port}/0"
        stack.enter_context(cluster)
        return measure(cluster, slow, rounds)


def measure(cluster: Cluster, slow: SlowConnection, rounds: int) -> list[Finding]:
    windows: dict[str, list[tuple[float, float]]] = {name: [] for name in ["none", *FAULTS]}
    seconds = rounds * len(FAULTS) * (2 * WINDOW + 0.5) + 5
    with loader.loaded(cluster.servers[0], MODEL.name, seconds=seconds, sequences=SEQUENCES, rate=RATE) as samples:
        for number in range(rounds):
            for name, fault in FAULTS.items():
                windows["none"].append(wait())
                with fault(cluster, slow):
                    windows[name].append(wait())
                time.sleep(0.1)
            say(f"round {number + 1} of {rounds}")
        found = samples()
    latencies = {name: [found.between(*window) for window in all] for name, all in windows.items()}
    undisturbed = latencies.pop("none")
    return [
        Finding("p99 undisturbed", f"{p99(undisturbed) * 1e3:.2f} ms"),
        *(compared(name, each, undisturbed) for name, each in latencies.items()),
        none("requests that failed", found.errors, len(found.took)),
    ]


def wait() -> tuple[float, float]:
    """Waits for a window, and returns when it began and ended."""
    began = time.time()
    time.sleep(WINDOW)
    return began, time.time()


def p99(windows: list[np.ndarray]) -> float:
    return float(np.percentile(np.concatenate(windows), 99))


def compared(name: str, windows: list[np.ndarray], undisturbed: list[np.ndarray]) -> Finding:
    """The ratio of both p99, and how far it may be off: by drawing windows again and again, as if they were all there is."""
    rng = np.random.default_rng(1)
    draw = lambda all: [all[i] for i in rng.integers(len(all), size=len(all))]
    ratios = [p99(draw(windows)) / p99(draw(undisturbed)) for _ in range(300)]
    low, high = np.percentile(ratios, [2.5, 97.5])
    ratio = p99(windows) / p99(undisturbed)
    return Finding(f"p99 with the store {name}, over undisturbed", f"{ratio:.2f} ({low:.2f} to {high:.2f})",
        f"at most {LIMIT:.2f} in this range", low <= LIMIT)  # fmt: skip


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
