"""A server that was stopped while another one took over its sequences: it must not overwrite, and with sync not answer."""

import collections
import re
import signal
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from tritonserver import TritonServer

from .cluster import Cluster
from .findings import Finding, at_least, none
from .model import Model, hashed, request
from .parts import newest

STORE = {"state_store": "env"}
MODELS = [
    Model("steps", parameters=STORE | {"checkpoint": "steps=2"}),
    Model("sync", parameters=STORE | {"checkpoint": "sync"}),
]
VALUE = 7
FENCED = "stateful_sequences_taken_over_total"
STEPS_BEFORE, STEPS_OTHER, STEPS_STALE = 5, 4, 3  # even numbers of steps are saved with steps=2


class Sent:
    """One sequence, by plain requests to either server. hash is that after the steps it knows of."""

    def __init__(self, number: int, model: str):
        self.number, self.model = number, model
        self.key = f"stale-{model}-{number}"

    def infer(
        self, client: InferenceServerClient, *, start: bool = False, timeout: float = 10, **parameters
    ) -> tuple[int, int, int]:
        """The name, the steps and the hash that the state has."""
        tensor = InferInput("X", [1, 2], "INT64").set_data_from_numpy(request(self.number, VALUE)["X"])
        if start:
            parameters["stateful_key"] = self.key
        result = client.infer(
            self.model, [tensor], sequence_id=self.number, sequence_start=start, parameters=parameters, client_timeout=timeout
        )
        least, greatest, count, hash = (int(value) for value in result.as_numpy("Y")[0])
        assert least == greatest
        return least, count, hash


def stale(sequences: int = 30) -> list[Finding]:
    """One server is stopped with steps that are not saved, the other one takes over, and the first one goes on."""
    with Cluster(MODELS, proxy=None) as cluster:
        first, second = cluster.servers
        with InferenceServerClient(first.grpc_url) as one, InferenceServerClient(second.grpc_url) as other:
            return [finding for model in MODELS for finding in take_over(cluster, first, one, other, model.name, sequences)]


def take_over(
    cluster: Cluster, server: TritonServer, one: InferenceServerClient, other: InferenceServerClient, model: str, count: int
) -> list[Finding]:
    every = [Sent(number, model) for number in range(1, count + 1)]
    fenced = fenced_saves(server, model)
    with ThreadPoolExecutor(2 * count) as pool:  # half of them wait for the server that is stopped
        for step in range(STEPS_BEFORE):
            list(pool.map(lambda each: each.infer(one, start=step == 0), every))
        time.sleep(0.5)  # what is due is saved
        # Steps are under way while the server is stopped, and saves as well.
        under_way = [pool.submit(answered, each, one, 30) for each in every]
        time.sleep(0.002)
        server.signal(signal.SIGSTOP)
        resumed = list(pool.map(lambda each: each.infer(other, start=True, stateful_resume="require"), every))
        for _ in range(STEPS_OTHER - 1):
            last = list(pool.map(lambda each: each.infer(other), every))
        time.sleep(0.5)  # what is due is saved
        watch = Watch(cluster, every)
        server.signal(signal.SIGCONT)
        # A step that was saved before the other server took over is no stale one, however late its answer is.
        taken = [steps - 1 for _, steps, _ in resumed]
        late = sum(isinstance(each.result(), int) and each.result() > steps for each, steps in zip(under_way, taken))
        said = [
            answer
            for all in pool.map(lambda each: [answered(each, one, 10) for _ in range(STEPS_STALE)], every)
            for answer in all
        ]
        answers = sum(isinstance(each, int) for each in said)
        time.sleep(1)
        backwards = watch.backwards()
        again = list(pool.map(lambda each: each.infer(other, start=True, stateful_resume="require"), every))
    wrong = sum(got != (each.number, steps, hash_after(steps)) for each, (_, steps, _), got in zip(every, resumed, resumed))
    wrong += sum(got != (each.number, before[1] + 1, hash_after(before[1] + 1)) for each, before, got in zip(every, last, again))
    found = [
        none(f"{model}: stale saves accepted", backwards, count),
        none(f"{model}: sequences that went on wrongly elsewhere", wrong, count),
    ]
    if model == "sync":
        return [*found, none(f"{model}: stale answers", late + answers, count * (STEPS_STALE + 1)), errors(model, said)]
    return [
        *found,
        at_least(f"{model}: sequences that the stopped server lost", fenced_since(server, model, fenced), 1),
        Finding(f"{model}: stale answers before the next save", f"{answers} of {count * STEPS_STALE}, and {late} under way"),
    ]


def answered(sequence: Sent, client: InferenceServerClient, timeout: float) -> int | str:
    """The steps that the answer has, or what the server says if it refuses the request."""
    try:
        return sequence.infer(client, timeout=timeout)[1]
    except InferenceServerException as error:
        return str(error.message())


def errors(model: str, said: list[int | str]) -> Finding:
    """What the server says instead, most of the time."""
    texts = [re.sub(r"\d[\d.]*", "N", text) for text in said if isinstance(text, str)]
    ((text, _),) = collections.Counter(texts).most_common(1)
    return Finding(f"{model}: what it says", text[:100])


def hash_after(steps: int) -> int:
    hash = 0
    for _ in range(steps):
        hash = hashed(hash, VALUE)
    return hash


def fenced_since(server: TritonServer, model: str, before: float, seconds: float = 10) -> int:
    """How many sequences the server has lost since; without requests it updates its metrics every five seconds."""
    deadline = time.monotonic() + seconds
    while (now := fenced_saves(server, model)) <= before and time.monotonic() < deadline:
        time.sleep(0.2)
    return int(now - before)


def fenced_saves(server: TritonServer, model: str) -> int:
    """The metric of sequences that the server lost because a save was refused."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return round(
        sum(float(value) for value in re.findall(rf'^{FENCED}{{[^}}]*model="{model}"[^}}]*}} (\S+)', text, re.MULTILINE))
    )


class Watch:
    """Looks at the store all the time: the owner's epoch may never go back, nor the steps of one owner."""

    def __init__(self, cluster: Cluster, sequences: list[Sent]):
        self._keys = [f"tritonstateful:{each.model}/1:@{each.key}" for each in sequences]
        self._client = cluster.store.client()
        self._latest = {key: self._read(key) for key in self._keys}
        assert all(epoch > 0 for epoch, _ in self._latest.values()), "nothing is saved under the keys that are watched"
        self._backwards: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def backwards(self) -> int:
        """Ends the watch, and returns of how many sequences an older state was written."""
        self._ended.set()
        self._thread.join()
        self._client.close()
        return len(self._backwards)

    def _watch(self) -> None:
        while not self._ended.is_set():
            for key in self._keys:
                now = self._read(key)
                if now < self._latest[key]:
                    self._backwards.add(key)
                self._latest[key] = now

    def _read(self, key: str) -> tuple[int, int]:
        epoch, steps, _ = newest(self._client, key)
        return epoch, steps
