"""What is logged, and at which level. Clients of the logging endpoint change the server's level while it runs."""

import re
import time

import pytest

from nvidia import FP32, PLAIN, await_lines, fours, lines, variant
from tritonserver import ServerError, TritonServer

RUN = {**PLAIN, "infer_end_requests": "1"}
WORDS = ("NONE", "INFO", "VERBOSE")

# Whether the line of every batch is at INFO, by logging_level and batch_info_logging_level: NVIDIA's table. Without
# either it is verbose, which is ours.
BATCH_LINE = {
    ("NONE", None): False, ("NONE", "INFO"): False, ("NONE", "VERBOSE"): False, ("NONE", "NONE"): True,
    ("INFO", None): True, ("INFO", "INFO"): True, ("INFO", "VERBOSE"): False, ("INFO", "NONE"): True,
    ("VERBOSE", None): True, ("VERBOSE", "INFO"): True, ("VERBOSE", "VERBOSE"): True, ("VERBOSE", "NONE"): False,
    (None, "INFO"): True, (None, "VERBOSE"): False, (None, "NONE"): True, (None, None): False,
}  # fmt: skip


def levels(logging: str | None, batch: str | None) -> str:
    return f"levels_{logging}_{batch}"


METRICS = {
    "metrics_details": {"detailed_metrics_logging_level": "INFO"},
    "metrics": {},
    "metrics_verbose": {"detailed_metrics_logging_level": "VERBOSE"},
    "metrics_as_verbose": {"detailed_metrics_logging_level": "NONE"},
    "metrics_silent": {"detailed_metrics_logging_level": "INFO", "logging_level": "NONE"},
    "metrics_off": {"detailed_metrics_logging_level": "INFO", "metric_logging_frequency_seconds": "-1"},
}

SILENT = {"metrics_silent", "metrics_off"}
SIZES, TIMES = "batch size since the last report", "time spent since the last report"

MODELS = {
    **{
        levels(logging, batch): variant(FP32, **{**RUN, "logging_level": logging, "batch_info_logging_level": batch})
        for logging, batch in BATCH_LINE
    },
    **{
        name: variant(FP32, **{**RUN, "metric_logging_frequency_seconds": "1", **parameters})
        for name, parameters in METRICS.items()
    },
    "not_run": variant(FP32, **{**RUN, "infer_end_requests": "0"}),
}


@pytest.fixture
def verbose(own_server: TritonServer):
    """Switches the server's verbose lines on for the test."""
    own_server.request("v2/logging", {"log_verbose_level": 1})
    yield
    own_server.request("v2/logging", {"log_verbose_level": 0})


@pytest.mark.parametrize(("logging", "batch"), BATCH_LINE)
def test_line_of_every_batch(own_server, own_client, logging, batch):
    name = levels(logging, batch)
    fours(own_client, name, 1, start=True, end=True)
    found = lines(own_server, "running inference", f"model={name} ")
    assert [re.sub(".*instance=", "", line) for line in found] == [f"{name}_0_0 requests=1"] * BATCH_LINE[logging, batch]


def test_lines_that_are_verbose(own_server, own_client, verbose):
    """Nothing is lost: what is not at INFO comes with --log-verbose=1, but for a model whose logging_level is NONE."""
    for logging in WORDS:
        name = levels(logging, "VERBOSE")
        before = len(lines(own_server, "running inference", f"model={name} "))
        fours(own_client, name, 77, start=True, end=True)
        assert len(lines(own_server, "running inference", f"model={name} ")) == before + 1
        resets = lines(own_server, "resetting the states", f"model={name} ")
        assert [line.endswith("sequence=77") for line in resets] == [True] * (logging != "NONE")


def test_end_that_is_not_run_is_verbose(own_server, own_client, verbose):
    fours(own_client, "not_run", 78, start=True)
    fours(own_client, "not_run", 78, end=True)
    (line,) = lines(own_server, "ending a sequence without inference")
    assert "model=not_run instance=not_run_0_0" in line and line.endswith("sequence=78")


def test_nothing_about_single_requests_by_default(own_server, own_client):
    """A line for each START was the largest cost of a small model."""
    name = levels(None, None)
    before = len(lines(own_server, name))
    fours(own_client, name, 79, start=True)
    fours(own_client, name, 79, end=True)
    assert len(lines(own_server, name)) == before


def test_load_report(own_server):
    """One message for a line, each with the name of the instance, for models load side by side."""
    for name in (levels("INFO", None), levels(None, None), levels("VERBOSE", "NONE")):
        found = lines(own_server, f"{name}_0_0: ")
        assert [re.sub(" {2,}", " | ", line.partition(": ")[2]) for line in found] == [
            "ready on CPU",
            "tensor | role | type | shape | batch axis | bytes each",
            "Input | input | FP32 | [-1,-1,5] | 1 | 80",
            "ResetSequence | start | BOOL | [-1,1] | 0 | 1",
            'Accumulate_In -> Accumulate_Out | state from state_pairs, begins with zeros | FP32 | [-1,5] | 0, axis "batch" | 20',
            "Output | output | FP32 | [-1,-1,5] | 1 | 80",
            "slots: 1152 now, at most 1152; max_candidate_sequences 1280 times max_candidate_sequence_use_ratio 0.9 is 1152",
            "states: 20 bytes for each sequence, 23040 bytes now, at most 23040; 3224 bytes for a batch of 16",
        ]
    assert lines(own_server, f"{levels('NONE', None)}_0_0: ") == []


def test_settings_are_logged(own_server):
    """Once for each model, whatever its logging_level."""
    for name in MODELS:
        (line,) = lines(own_server, "settings model=" + name + " ")
        for part in (
            "max_batch_size=16",
            "max_candidate_sequences=1280",
            "max_candidate_sequence_use_ratio=0.9",
            "max_sequence_idle_microseconds=100000000",
            "correlation_ids=numbers",
            "max_state_memory_bytes=0",
        ):
            assert f" {part}" in line


def test_metrics(own_server, own_client):
    """At the first batch that ends more than a second after the last report; then the sums start over."""

    def batch(**flags) -> None:
        for name in METRICS:
            fours(own_client, name, 1, **flags)

    def reports(kind: str, name: str) -> list[str]:
        return lines(own_server, kind, f"model={name} ")

    batch(start=True)
    time.sleep(1.1)
    batch()  # whatever came before is reported now
    reported = {name: len(await_lines(own_server, 1, SIZES, f"model={name} ")) for name in METRICS if name not in SILENT}
    batch()
    time.sleep(1.1)
    batch(end=True)
    for name, before in reported.items():
        new = await_lines(own_server, before + 1, SIZES, f"model={name} ")[before:]
        assert [line.partition("instance=")[2] for line in new] == [f"{name}_0_0 average=1 largest=1"]
    assert {name for name in METRICS if reports(SIZES, name)} == set(METRICS) - SILENT
    assert {name for name in METRICS if reports(TIMES, name)} == {"metrics_details"}
    line = reports(TIMES, "metrics_details")[-1]
    for part in ("inputs", "gather", "run", "scatter", "responses", "slot_allocation", "total"):
        assert re.search(rf" {part}=[\d.]+(ns|µs|ms|s)\b", line)
    assert line.endswith("requests=2 runs=2")


ORT_LINE = re.compile(r"^I\d+ \S+ \d+ onnxruntime:0\]", re.MULTILINE)


def test_onnxruntime_log_level(serve):
    """0 is verbose: ONNX Runtime's own lines come into the server's log. By default only its warnings do."""
    folder = {"model": variant(FP32, **RUN)}
    quiet = serve(folder, options=["--log-verbose=1"])
    assert not ORT_LINE.search(quiet.log_text())
    loud = serve(folder, options=["--log-verbose=1", "--backend-config=stateful,ort-logging-level=0"])
    assert len(ORT_LINE.findall(loud.log_text())) > 5


@pytest.mark.parametrize("value", ["loud", "5"])
def test_onnxruntime_log_level_is_checked(serve, value):
    """The C++ backend took it for the level of warnings, or ended the server."""
    options = [f"--backend-config=stateful,ort-logging-level={value}"]
    server = serve({"model": variant(FP32, **RUN)}, explicit=True, options=options)
    with pytest.raises(ServerError, match=rf"ort-logging-level={value}: want 0 \(verbose\), 1 .* or 4 \(fatal\)"):
        server.load("model")
    assert server.is_running()


def test_unknown_backend_setting_is_named(serve):
    server = serve({"model": variant(FP32, **RUN)}, options=["--backend-config=stateful,ort-log-level=0"])
    (line,) = lines(server, "unknown --backend-config setting")
    assert "setting=ort-log-level" in line and "ort-logging-level" in line.partition("known=")[2]
