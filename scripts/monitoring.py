"""Shows the dashboard's queries and the alerts to a real Prometheus: go run build.go monitoring.

Starts a tritonserver and a Prometheus that scrapes it, has clients use and misuse sequences for a while, and then asks
Prometheus for what each panel of docs/grafana.json shows, and which alerts of docs/alerts.yml fire. Grafana itself is not
run.
"""

import argparse
import contextlib
import itertools
import json
import math
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

import screenshots
import tritonserver
from drills import parts
from graphs import running_sum
from smoke import table
from tritonserver import TritonServer

CONFIG = """
backend: "stateful"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 3 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 3 ] }]
sequence_batching { max_sequence_idle_microseconds: 2000000 oldest { max_candidate_sequences: 20 } }
parameters { key: "max_candidate_sequence_use_ratio" value { string_value: "0.5" } }
parameters { key: "state_store" value { string_value: "file:FOLDER" } }
parameters { key: "checkpoint" value { string_value: "steps=5" } }
instance_group [{ kind: KIND_CPU }]
"""
CLIENTS = 12  # of which ten get a slot
# The alerts that these clients cause: some get no slot, and then send requests all the same. Others may be pending, and none
# fires.
FIRING = {"SequencesRejected", "RequestsOfUnknownSequences"}
# What Grafana puts in the place of its variables. A rate needs several scrapes, one of which is made each second.
VARIABLES = {"$model": ".*", "$instance": ".*", "$__rate_interval": "10s"}


class Client(threading.Thread):
    """Sends sequences of 20 steps until it is told to stop, and abandons one of five."""

    def __init__(self, server: TritonServer, number: int, stop: threading.Event):
        super().__init__(daemon=True)
        self.server, self.number, self.stopped = server, number, stop

    def run(self) -> None:
        with InferenceServerClient(self.server.grpc_url) as client:
            for sequence in itertools.count(self.number, 100):
                last = 19 if random.random() < 0.8 else -1
                for step in range(20):
                    if self.stopped.wait(0.02):
                        return
                    flags = {"sequence_start": step == 0, "sequence_end": step == last}
                    with contextlib.suppress(InferenceServerException):
                        client.infer("speech", self.inputs(), sequence_id=sequence + 1, **flags)

    def inputs(self) -> list[InferInput]:
        x = InferInput("x", [1, 3], "FP32")
        return [x.set_data_from_numpy(np.ones((1, 3), np.float32))]


def panels(prometheus: parts.Prometheus) -> list[list[str]]:
    """For each query of the dashboard: the panel, what it shows now, and the query."""
    rows = []
    for panel in json.loads((parts.DOCS / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            series = prometheus.get("query", query=query)["result"]
            values = [float(each["value"][1]) for each in series]
            shown = ", ".join(f"{value:.4g}" for value in values)
            rows.append(
                [panel["title"], shown if values and all(map(math.isfinite, values)) else f"NO DATA ({shown})", target["expr"]]
            )
    return rows


def alerts(prometheus: parts.Prometheus) -> dict[str, str]:
    """The state of each alert, or what is wrong with its rule."""
    (group,) = prometheus.get("rules")["groups"]
    return {rule["name"]: rule["state"] if rule["health"] == "ok" else rule.get("lastError", "") for rule in group["rules"]}


def serve(folder: Path) -> TritonServer:
    version = folder / "models" / "speech" / "1"
    version.mkdir(parents=True)
    (folder / "store").mkdir()
    (version / "model.onnx").write_bytes(running_sum("batch", 3).SerializeToString())
    (version.parent / "config.pbtxt").write_text(CONFIG.replace("FOLDER", str(folder / "store")))
    return TritonServer(folder / "models")


def main() -> int:
    parser = argparse.ArgumentParser(prog="go run build.go monitoring", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="how long the clients run (default: 30)")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER",
        help="also take pictures of Prometheus's pages, as docs has them; needs apt-get install chromium prometheus")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.pictures:
        try:
            screenshots.check_programs()
        except parts.NotAvailable as why:
            parser.error(str(why))
    tritonserver.exit_on_sigterm()
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server, parts.Prometheus(server) as prometheus:
        clients = [Client(server, number, stop) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(arguments.seconds)
        if arguments.pictures:
            screenshots.take(prometheus, arguments.pictures, arguments.seconds)
        rows, states = panels(prometheus), alerts(prometheus)
        stop.set()
        for client in clients:
            client.join()
    print(table([["panel", "now"], *(row[:2] for row in rows)]), "\n")
    print(table([["alert", "state"], *map(list, states.items())]))
    firing = {name for name, state in states.items() if state not in ("inactive", "pending")}
    failed = [query for _, shown, query in rows if shown.startswith("NO DATA")]
    print(*failed, sep="\n")
    if firing != FIRING:
        print(f"alerts {sorted(firing)} fire, want {sorted(FIRING)}")
    passed = not failed and firing == FIRING
    print("PASSED" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
