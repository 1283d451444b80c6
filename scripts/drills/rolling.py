"""Both servers are updated one after the other, under load: the clients notice nothing."""

import contextlib
import time

from tritonserver import ServerError, TritonServer

from .clients import Clients, Load, replaying
from .cluster import Cluster
from .findings import Finding, none, say
from .killing import MODELS, exactly

# preStop waits 5 s, for the DNS name and all that has to hear of it; here there is nothing but a file.
UNROUTED = 1.5  # seconds


def rolling(sequences: int, rounds: int, seconds: float) -> list[Finding]:
    """As preStop in docs/deploy/kubernetes.yaml does it: a server is taken from the proxy, its models are unloaded, which saves
    their sequences, and then it ends."""
    codes: list[int | None] = []
    names = [model.name for model in MODELS]
    with Cluster(MODELS, explicit=True) as cluster:
        with Clients(cluster.address, names, sequences, Load(), replaying) as clients:
            for number in range(rounds):
                for server in cluster.servers:
                    time.sleep(seconds)
                    codes.append(update(cluster, server))
                say(f"round {number + 1}: {clients.tally.answers:,} answers, {clients.tally.recoveries:,} recoveries")
            time.sleep(seconds)
        failed = sum(code != 0 for code in codes)
        return [
            Finding("restarts", f"{len(codes)}"),
            none("servers that did not end in order", failed, len(codes)),
            *exactly(clients.tally),
        ]


def update(cluster: Cluster, server: TritonServer) -> int | None:
    """Ends the server in good order, and starts it again. Returns its exit code."""
    cluster.proxy.route([each for each in cluster.servers if each is not server])
    time.sleep(UNROUTED)
    for model in MODELS:
        with contextlib.suppress(ServerError):
            server.unload(model.name)
    wait_until_unloaded(server)
    code = server.stop()
    server.start()
    cluster.proxy.route(cluster.servers)
    return code


def wait_until_unloaded(server: TritonServer, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(model.get("state") in ("READY", "UNLOADING") for model in server.request("v2/repository/index", {})):
            return
        time.sleep(0.05)
