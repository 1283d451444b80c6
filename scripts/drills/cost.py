"""What saving costs: CPU of the server a request, and the time of an unload with many sequences that are not saved."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import valkey
from tritonclient.grpc import InferenceServerClient, InferInput

from . import loader
from .cluster import Cluster
from .findings import Finding, at_most, none, say
from .model import Model, request
from .rolling import wait_until_unloaded

HALF_MEGABYTE, KIB64 = 65_536, 8_192  # names of 8 bytes
OFF, NONE, SAVED = "off", "none", "saved"
COST_MODELS = [
    Model(NONE, names=HALF_MEGABYTE, candidates=128),
    Model(OFF, names=HALF_MEGABYTE, candidates=128, parameters={"state_store": "env", "checkpoint": "off"}),
    Model(SAVED, names=HALF_MEGABYTE, candidates=128, parameters={"state_store": "env", "checkpoint": "steps=10"}),
]
SEQUENCES = 32
# CPU times of runs of some seconds differ by this much without any reason.
NOISE = 2.0  # percent


def cost(rounds: int, seconds: float) -> list[Finding]:
    """States of 0.5 MB, saved every ten steps, in rounds next to a model of the same file whose states are not saved."""
    loader.build()
    cpu: dict[str, list[float]] = {model.name: [] for model in COST_MODELS}
    with Cluster(COST_MODELS, servers=1, proxy=None, apart=True) as cluster:
        for number in range(rounds + 1):
            for model in COST_MODELS[number % 3 :] + COST_MODELS[: number % 3]:
                found = loader.load(cluster.servers[0], model.name, seconds=seconds, sequences=SEQUENCES)
                if number > 0:  # the first round warms up
                    cpu[model.name].append(found.cpu)
            say(", ".join(f"{name} {values[-1]:.0f} µs" for name, values in cpu.items() if values))
    more = {
        name: (statistics.median(one / base for one, base in zip(values, cpu[NONE], strict=True)) - 1) * 100
        for name, values in cpu.items()
    }
    return [
        Finding("0.5 MB states: CPU a request without a store", f"{statistics.median(cpu[NONE]):.0f} µs"),
        at_most("0.5 MB states: CPU a request more, steps=10", more[SAVED], 10, "%"),
        at_most("0.5 MB states: CPU a request more, off", more[OFF], NOISE, "%"),
    ]


def flush(sequences: int, most_seconds: float = 10) -> list[Finding]:
    """Sequences of 64 KiB, of which none is saved yet, are saved when the model is unloaded."""
    never = {"state_store": "env", "checkpoint": "interval=3600000"}
    model = Model("flushed", names=KIB64, candidates=sequences + 100, parameters=never)
    with Cluster([model], servers=1, proxy=None, explicit=True, options=["--log-warning=false"]) as cluster:
        server = cluster.servers[0]
        with InferenceServerClient(server.grpc_url) as client, ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda number: begin(client, model.name, number), range(1, sequences + 1)))
        with cluster.store.client() as store:
            before = saved_states(store)
            began = time.monotonic()
            server.unload(model.name)
            wait_until_unloaded(server, 60)
            took = time.monotonic() - began
            saved = saved_states(store)
    return [
        none("states saved before the unload", before),
        Finding("states saved by the unload", f"{saved:,} of {sequences:,}", "all", saved == sequences),
        at_most(f"unload with {sequences:,} sequences of 64 KiB", took, most_seconds, "s"),
    ]


def saved_states(store: valkey.Valkey) -> int:
    return sum(1 for _ in store.scan_iter("tritonstateful::*", count=1000))


def begin(client: InferenceServerClient, model: str, number: int) -> None:
    tensor = InferInput("X", [1, 2], "INT64").set_data_from_numpy(request(number, 1)["X"])
    client.infer(model, [tensor], sequence_id=number, sequence_start=True)
