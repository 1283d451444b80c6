"""What the backend tells tritonserver besides answers, and what it takes from it besides requests: traces, the memory of a
model, host policies."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient

from configs import config, io, oldest
from conftest import Folder
from graphs import op, running_sum
from unary import infer

F32 = np.float32
PARTS = ["gather", "run", "store"]


def folder(group: str = "count: 1", width: int = 3, **parameters: str) -> Folder:
    settings = config(
        [io("x", "FP32", width)], [io("y", "FP32", width)], oldest(0),
        group=f"instance_group [{{ kind: KIND_CPU {group} }}]", state_pairs="<<<s, s_out>>>", **parameters,
    )  # fmt: skip
    return Folder(settings, running_sum("batch", width))


def steps(client: InferenceServerClient, name: str, sequences: int, width: int = 3) -> None:
    """Three requests of each sequence, which get 1, 2 and 3."""
    for number in (1, 2, 3):
        for sequence in range(1, sequences + 1):
            values = {"x": np.ones((1, width), F32)}
            answer = infer(client, name, sequence, values, start=number == 1, end=number == 3)
            np.testing.assert_array_equal(answer["y"], np.full((1, width), number, F32))


# ---- traces ----


def test_triton_trace(serve, tmp_path):
    """Every traced request has the parts of its run in its trace, one after the other and within Triton's own."""
    file = tmp_path / "trace.json"
    options = [f"--trace-config=triton,file={file}", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=2"]
    server = serve({"traced": folder()}, options=options)
    with InferenceServerClient(server.grpc_url) as client:
        steps(client, "traced", 2)
    assert server.stop() == 0
    traces: dict[int, dict[str, int]] = {}
    for entry in json.loads(file.read_text()):
        of = traces.setdefault(entry["id"], {})
        of.update((stamp["name"], stamp["ns"]) for stamp in entry.get("timestamps", []))
    assert len(traces) == 3, "every second of six requests"
    for stamps in traces.values():
        edges = [f"stateful_{part}_{edge}" for part in PARTS for edge in ("START", "END")]
        times = [stamps["QUEUE_START"], *(stamps[edge] for edge in edges), stamps["REQUEST_END"]]
        assert times == sorted(times)
        assert stamps["stateful_gather_END"] == stamps["stateful_run_START"]
        assert stamps["stateful_run_END"] == stamps["stateful_store_START"]


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An OpenTelemetry collector: its URL, and the bodies that it got."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
        finally:
            server.shutdown()
            thread.join()


def test_opentelemetry(serve):
    """The parts are spans within that of the model."""
    with collector() as (url, bodies):
        options = ["--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={url}",
                   "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"]  # fmt: skip
        server = serve({"traced": folder()}, options=options)
        with InferenceServerClient(server.grpc_url) as client:
            steps(client, "traced", 2)
        assert server.stop() == 0
    spans = [
        span
        for body in bodies
        for resource in json.loads(body)["resourceSpans"]
        for scope in resource.get("scopeSpans", [])
        for span in scope["spans"]
    ]
    names = {span["spanId"]: span["name"] for span in spans}
    ours = Counter((span["name"], names[span["parentSpanId"]]) for span in spans if span["name"].startswith("stateful"))
    assert ours == {(f"stateful_{part}", "traced"): 6 for part in PARTS}


# ---- memory ----


def memory(server, name: str) -> list[dict]:
    (stats,) = server.request(f"v2/models/{name}/stats")["model_stats"]
    return stats["memory_usage"]


def test_memory_is_in_the_statistics(serve):
    """The weights once for both instances, and the states of each."""
    width = 1024
    weights, states = 4 * width * width, 28 * 4 * width  # for 0.9 times 32 sequences
    settings = [folder(group, width=width).config for group in ("count: 1", "count: 2")]
    onnx = running_sum("batch", width, nodes=[op("MatMul", "x w -> p")], term="p", constants={"w": np.eye(width, dtype=F32)})
    server = serve({name: Folder(text, onnx) for name, text in zip(("one", "two"), settings)})
    (one,), (two,) = memory(server, "one"), memory(server, "two")
    assert one["type"] == two["type"] == "CPU" and one["id"] == two["id"] == 0
    assert weights + states <= int(one["byte_size"]) < 2 * weights
    assert states <= int(two["byte_size"]) - int(one["byte_size"]) < weights / 2


# ---- sessions and host policies ----


def sessions(log: str, name: str) -> int:
    """How many sessions the instances have opened."""
    return sum("opened a session" in line and f"model={name} " in line for line in log.splitlines())


def test_instances_share_a_session(serve):
    models = {
        "shared": folder("count: 4"),
        "own": folder("count: 4", share_session_between_instances="0"),
        "threads": folder("count: 4", intra_op_threads="2"),
    }
    server = serve(models, options=["--log-verbose=1"], explicit=True)
    for name in models:
        server.load(name)
        with InferenceServerClient(server.grpc_url) as client:
            steps(client, name, 16)
    log = server.log_text()
    assert sessions(log, "shared") == 1
    assert [sum(sessions(log, f"{name}_0_{i}") for i in range(4)) for name in ("own", "threads")] == [4, 4]
    server.load("shared", server.request("v2/models/shared/config"))  # the same again changes nothing
    changed = server.request("v2/models/shared/config")
    changed["sequence_batching"]["max_sequence_idle_microseconds"] = 50_000_000
    server.load("shared", changed)
    assert sessions(server.log_text(), "shared") == 2, "a model that is loaded again has a session of its own"
    with InferenceServerClient(server.grpc_url) as client:
        steps(client, "shared", 16)


def cores_of_threads(pid: int) -> Counter[frozenset[int]]:
    """How many threads of a process may run on which cores."""
    found = Counter()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[frozenset(os.sched_getaffinity(int(thread.name)))] += 1
        except ProcessLookupError:
            pass  # it has ended
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is all that there is")
def test_host_policy(serve):
    """The threads that load and execute an instance, and those of ONNX Runtime, are on the cores of its host policy;
    instances of another policy have a session of their own."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    groups = 'instance_group [{ kind: KIND_CPU host_policy: "a" count: 2 }, { kind: KIND_CPU host_policy: "b" count: 2 }]'
    base = folder(intra_op_threads="0")
    bound = Folder(base.config.replace("instance_group [{ kind: KIND_CPU count: 1 }]", groups), base.onnx)
    assert groups in bound.config
    threads = Folder(
        folder(intra_op_threads="3").config.replace("KIND_CPU count: 1", 'KIND_CPU host_policy: "a" count: 1'), base.onnx
    )
    options = [f"--host-policy=a,cpu-cores={first}-{first}", f"--host-policy=b,cpu-cores={second}-{second}", "--log-verbose=1"]
    server = serve({"bound": bound, "threads": threads}, options=options, explicit=True)
    server.load("bound")
    before = cores_of_threads(server.pid)
    assert before[frozenset([first])] >= 2 and before[frozenset([second])] >= 2, before
    assert sessions(server.log_text(), "bound") == 2
    with InferenceServerClient(server.grpc_url) as client:
        steps(client, "bound", 8)
        server.load("threads")
        after = cores_of_threads(server.pid)
        assert after[frozenset([first])] - before[frozenset([first])] >= 3, "two of ONNX Runtime, and one that executes"
        steps(client, "threads", 2)
