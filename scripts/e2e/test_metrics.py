"""The metrics on Triton's metrics port, after a load of which every number is known; and that docs/ lists them all."""

import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest
from conftest import Folder
from graphs import op, running_sum, tensor
from prometheus import Scrape, family, scrape
from tritonserver import NO_METRICS, ROOT, TritonServer
from unary import infer

F32 = np.float32
DOCS = ROOT / "docs"
X, Y = io("x", "FP32", 3), io("y", "FP32", 3)


def picky() -> ModelProto:
    """y = s' = s + x + table[at], which fails for an index that the table has not."""
    nodes = [op("Gather", "table at -> one"), op("Add", "x one -> more")]
    table, at = np.zeros(2, F32), tensor("at", np.int64, "batch", 1)
    return running_sum("batch", 3, nodes=nodes, term="more", inputs=[at], constants={"table": table})


def scheduler(candidates: int, idle: float = 60) -> str:
    return oldest(0, candidates=candidates).replace("60000000", str(int(idle * 1e6)))


MODELS = {
    # Three slots, of which four sequences can try to get one; each run is padded to two rows.
    "story": Folder(
        config(
            [X, io("at", "INT64", 1)], [Y], scheduler(4), batch=2,
            max_candidate_sequence_use_ratio="0.75", batch_padding="max",
        ),
        picky,
    ),
    "idling": Folder(
        config([X], [Y], scheduler(4, idle=0.2), batch=1, max_candidate_sequence_use_ratio="0.25"), running_sum("batch", 3)
    ),
    "reloaded": Folder(config([X], [Y], scheduler(4), batch=1), running_sum("batch", 3)),
}  # fmt: skip


def step(client: InferenceServerClient, name: str, sequence: int, value: float = 1, **flags) -> None:
    values = {"x": np.full((1, 3), value, F32)}
    if name == "story":
        values["at"] = np.array([[flags.pop("at", 0)]])
    infer(client, name, sequence, values, **flags)


def refused(message: str):
    return pytest.raises(InferenceServerException, match=message)


def scraped(server: TritonServer) -> Scrape:
    return scrape(server.metrics_url, "stateful_")


def settled(server: TritonServer, name: str, sample: str, value: float) -> dict[str, float]:
    """The samples of a model, once one of them has the value: metrics follow the answers by some microseconds."""
    deadline = time.monotonic() + 5
    while (found := scraped(server).of(name)).get(sample) != value and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_story(own_server, own_client):
    before = scraped(own_server).of("story")
    assert {before[f"stateful_{name}"] for name in ("sequences_active", "chunks", "slots_free")} == {0, 1, 3}

    for sequence in (1, 2, 3):
        step(own_client, "story", sequence, start=True)
    step(own_client, "story", 1)
    time.sleep(0.05)
    step(own_client, "story", 1)
    step(own_client, "story", 1, start=True)  # a restart
    with refused("too many simultaneous sequences"):
        step(own_client, "story", 4, start=True)
    with refused("its START was refused"):
        step(own_client, "story", 4)
    step(own_client, "story", 3, end=True)
    with refused("error during inference"):
        step(own_client, "story", 5, start=True, at=9)
    with refused("its START failed"):
        step(own_client, "story", 5)
    with refused("error during inference"):
        step(own_client, "story", 2, at=9)  # keeps its state

    after = settled(own_server, "story", "stateful_failed_runs_total", 2)
    assert counts(after) == {
        "stateful_sequences_active": 2,
        "stateful_slots_capacity": 3,
        "stateful_slots_used_ratio": 2 / 3,
        "stateful_slots_free": 1,
        "stateful_state_bytes": 3 * 3 * 4,
        "stateful_chunks": 1,
        "stateful_sequences_started_total": 4,
        "stateful_sequences_restarted_total": 1,
        "stateful_sequences_ended_total": 1,
        "stateful_sequences_expired_total": 0,
        "stateful_sequences_evicted_total": 0,
        "stateful_sequences_displaced_total": 0,
        'stateful_sequences_rejected_total{reason="full"}': 1,
        'stateful_sequences_rejected_total{reason="start_failed"}': 1,
        "stateful_requests_unknown_total": 2,
        "stateful_padded_rows_total": 9,
        "stateful_failed_runs_total": 2,
        "stateful_saturated_elements_total": 0,
        "stateful_saves_total": 0,
        "stateful_saved_bytes_total": 0,
        "stateful_store_errors_total": 0,
        "stateful_sequences_taken_over_total": 0,
        "stateful_sequences_unsaved": 0,
        "stateful_unsaved_seconds": 0,
        **{f'stateful_restores_total{{reason="{reason}"}}': 0 for reason in ("restored", "missing", "damaged", "failed")},
        "stateful_store_seconds_count": 0,
        # Nine runs of one row; batches without a run are not timed; four requests came to a sequence with a state.
        "stateful_batch_size_count": 9,
        "stateful_gather_seconds_count": 9,
        "stateful_run_seconds_count": 9,
        "stateful_scatter_seconds_count": 9,
        "stateful_step_seconds_count": 9,
        "stateful_sequence_gap_seconds_count": 4,
    }
    assert after["stateful_batch_size_sum"] == 9
    assert after['stateful_batch_size_bucket{le="1"}'] == after['stateful_batch_size_bucket{le="+Inf"}'] == 9
    assert 0.05 < after["stateful_sequence_gap_seconds_sum"] < 30
    parts = sum(after[f"stateful_{part}_seconds_sum"] for part in ("gather", "run", "scatter"))
    assert 0 < parts < after["stateful_step_seconds_sum"] < 30


def test_gauges_follow_without_requests(serve):
    """A sequence whose client is gone ends after twice the idle limit and ten seconds, and the gauges say so: no request
    is needed for that."""
    server = serve({"idling": MODELS["idling"]})
    with InferenceServerClient(server.grpc_url) as client:
        step(client, "idling", 1, start=True)
    assert settled(server, "idling", "stateful_sequences_active", 1)["stateful_slots_used_ratio"] == 1
    deadline = time.monotonic() + 30
    while (found := scraped(server).of("idling"))["stateful_sequences_active"] > 0 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert found["stateful_sequences_active"] == found["stateful_slots_used_ratio"] == 0
    assert found["stateful_slots_free"] == found["stateful_sequences_expired_total"] == 1


def counts(samples: dict[str, float]) -> dict[str, float]:
    """All samples but the buckets and sums of histograms."""
    return {name: value for name, value in samples.items() if "_bucket" not in name and not name.endswith("_sum")}


# Makes two metrics of one family, of which the second has one more label, and prints their values.
TWO_SERIES = """
import ctypes, sys
triton, pointer = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p
triton.TRITONSERVER_ParameterNew.restype = pointer
def call(name, *arguments):
    function = getattr(triton, "TRITONSERVER_" + name)
    function.restype = pointer
    assert function(*arguments) is None, name
family = pointer()
call("MetricFamilyNew", ctypes.byref(family), 1, b"stateful_chunks", b"Chunks")
metrics = [pointer(), pointer()]
for value, labels in enumerate([[b"instance"], [b"instance", b"gpu_uuid"]]):
    made = [triton.TRITONSERVER_ParameterNew(name, 0, b"x") for name in labels]
    call("MetricNew", ctypes.byref(metrics[value]), family, (pointer * len(made))(*made), ctypes.c_uint64(len(made)))
    call("MetricSet", metrics[value], ctypes.c_double(value + 1))
for metric in metrics:
    value = ctypes.c_double()
    call("MetricValue", metric, ctypes.byref(value))
    print(value.value)
"""


def test_series_of_a_family_may_differ_in_labels():
    """Instances on a GPU have labels that others have not; the real server's library takes both into one family."""
    (library,) = ROOT.glob("build/venv/lib/python3*/site-packages/nvidia_pytriton.libs/libtritonserver-*.so")
    env = os.environ | {"LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([sys.executable, "-c", TWO_SERIES, library], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1.0\n2.0\n"), done.stderr


def test_labels(own_server):
    """Only the model, its version and the instance: nothing that grows with the number of sequences."""
    for name, series in scraped(own_server).samples.items():
        for labels in series:
            if name == "stateful_build_info":
                continue
            own = {"reason"} if "rejected" in name or "restores" in name else {"le"} if name.endswith("_bucket") else set()
            assert set(dict(labels)) == {"model", "version", "instance"} | own
    instances = {dict(labels)["instance"] for labels in scraped(own_server).samples["stateful_chunks"]}
    assert len(instances) == len(MODELS)


def test_build_info(own_server):
    """One sample for the whole server, and the same versions in the log."""
    ((labels, value),) = scraped(own_server).samples["stateful_build_info"].items()
    assert value == 1 and dict(labels).keys() == {"version", "onnxruntime"}
    version, onnxruntime = dict(labels)["version"], dict(labels)["onnxruntime"]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", version) and re.fullmatch(r"\d+\.\d+\.\d+", onnxruntime)
    assert re.search(rf"version={version} (commit=\w+ )?onnxruntime={onnxruntime}", own_server.log_text())


def test_reload_and_unload(serve):
    """A model that is loaded again, twice for a moment, keeps its metrics; an unloaded one has none."""
    server = serve({"reloaded": MODELS["reloaded"]}, explicit=True)
    server.load("reloaded")
    with InferenceServerClient(server.grpc_url) as client:
        for number in (1, 2, 3):
            step(client, "reloaded", 1, start=True)
            samples = settled(server, "reloaded", "stateful_sequences_started_total", number)
            assert samples["stateful_sequences_started_total"] == number  # it goes on counting
            changed = server.request("v2/models/reloaded/config")
            changed["sequence_batching"]["max_sequence_idle_microseconds"] = 10_000_000 + number
            server.load("reloaded", changed)
            assert settled(server, "reloaded", "stateful_sequences_active", 0)["stateful_sequences_active"] == 0
    server.unload("reloaded")
    deadline = time.monotonic() + 10
    while scraped(server).of("reloaded") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert scraped(server).of("reloaded") == {}


def test_switched_off(serve):
    server = serve({"reloaded": MODELS["reloaded"]}, options=["--backend-config=stateful,metrics=false"])
    with InferenceServerClient(server.grpc_url) as client:
        step(client, "reloaded", 1, start=True)
    assert scraped(server).types == {}


# ---- docs ----


def documented() -> dict[str, str]:
    """The types of the metrics in the tables of docs/metrics.md."""
    rows = re.findall(r"^\| `(stateful_\w+)` \| (\w+) \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_documentation_has_every_metric(own_server):
    assert documented() == scraped(own_server).types


def test_documentation_has_every_label():
    code = set(re.findall(r'\{"(\w+)", \s*(?:of->|reason)', (ROOT / "capi" / "metrics.c").read_text()))
    table = re.search(r"^\| Label \|.*?\n\n", (DOCS / "metrics.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == code - {"reason"}
    assert len(code) == 7


def test_documentation_names_no_other(own_server):
    """In its hints, and in the alerts."""
    named = set(re.findall(r"\bstateful_\w+", (DOCS / "metrics.md").read_text() + (DOCS / "alerts.yml").read_text()))
    assert {name for name in named - documented().keys() if name not in scraped(own_server).samples} == set()


def dashboard_expressions() -> list[str]:
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_dashboard_shows_every_metric(own_server):
    named = {name for expression in dashboard_expressions() for name in re.findall(r"\bstateful_\w+", expression)}
    samples = scraped(own_server).samples
    assert named <= samples.keys()
    assert {family(name) for name in named} == scraped(own_server).types.keys()


def unread(given: object, known: object, path: str = "") -> list[str]:
    """The fields of JSON that what was made of it does not have, or has with another value."""
    if isinstance(given, dict) and isinstance(known, dict):
        return [each for key, value in given.items() for each in unread(value, known.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(known, list):
        return [each for pair in zip(given, known, strict=True) for each in unread(*pair, path)]
    return [] if given == known else [path]


def test_dashboard_is_one_that_grafana_imports():
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    # Grafana's own classes have all of it but the demands on who imports it, and what the editor shows of a query.
    assert set(unread(dashboard, read)) == {".__requires", ".templating.list.definition"}
    assert dashboard["schemaVersion"] >= 36
    assert ("DS_PROMETHEUS", "datasource") in [(each["name"], each["type"]) for each in dashboard["templating"]["list"]]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${DS_PROMETHEUS}" and panel["targets"] and panel["description"]
    for expression in dashboard_expressions():
        assert expression.count("(") == expression.count(")")
        assert re.search(r'model=~"\$model"', expression) or "build_info" in expression, expression


def test_documentation_has_every_alert():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    (group,) = yaml.safe_load((DOCS / "alerts.yml").read_text())["groups"]
    assert rows == [rule["alert"] for rule in group["rules"]]


def test_prometheus_scrapes_where_the_metrics_are(own_server):
    path = re.search(r"^ +metrics_path: (\S+)$", (DOCS / "prometheus.yml").read_text(), re.MULTILINE)[1]
    assert scrape(own_server.metrics_url, "stateful_", path).types


def test_without_metrics_in_the_server(serve):
    """The model answers, and the backend has no word on metrics."""
    server = serve({"idling": MODELS["idling"]}, options=[NO_METRICS])
    ones = {"x": np.ones((1, 3), F32)}
    with InferenceServerClient(server.grpc_url) as client:
        infer(client, "idling", 7, ones, start=True)
        np.testing.assert_array_equal(infer(client, "idling", 7, ones, end=True)["y"], [[2, 2, 2]])
    ours = re.findall(r"^(\w).* \w+\.go:\d+\] (.*)$", server.log_text(), re.MULTILINE)
    assert "ready on CPU" in str(ours)
    assert [text for level, text in ours if level != "I" or re.search(r"\bstateful_|metrics are", text)] == []
