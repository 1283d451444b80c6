"""The command tritonstateful with real servers. What it does without one is tested in internal/cli."""

import json
import subprocess

from configs import config, io, oldest
from conftest import Folder
from graphs import running_sum
from tritonserver import ROOT, TritonServer

COMMAND = ROOT / "build" / "install" / "bin" / "tritonstateful"
POOL = "--grpc-infer-allocation-pool-size=4096"
X, Y = io("x", "FP32", 3), io("y", "FP32", 3)


def run(*arguments: str, code: int = 0) -> str:
    """What the command prints; it must have this exit code."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def run_json(*arguments: str, code: int = 0) -> dict:
    return json.loads(run(*arguments, "--json", code=code))


def found(report: dict) -> set[tuple[str, str]]:
    return {(finding["rule"], finding["where"]) for finding in report["findings"]}


def test_doctor_of_the_examples(server: TritonServer):
    """NVIDIA's configurations have a numeric control, and 2.51 has two faults with it."""
    url = f"http://{server.http_url}"
    report = run_json("doctor", url, code=2)
    assert ("numeric-corrid", "model accumulate_fp32") in found(report)
    assert ("grpc-pool", url) in found(report)
    assert "glibc" in {rule["rule"] for rule in report["unseen"]}  # without the process or the folder


def test_doctor_of_a_patient_server(serve):
    """A server without faults, seen by its URL, its process, its models and its backend."""
    patient = Folder(config([X], [Y], oldest(0, candidates=4), batch=1), running_sum("batch", 3))
    server = serve({"patient": patient}, options=[POOL])
    report = run_json("doctor", server.http_url, "--pid", str(server.pid), str(server.repository), str(server.backends))
    assert found(report) == set()
    assert [rule["rule"] for rule in report["unseen"]] == ["affinity", "autoscaling"]


def test_doctor_sees_the_default_idle_limit(serve):
    """Triton fills the default in; seen at the server and in the file."""
    hasty = Folder(
        config([X], [Y], "sequence_batching { oldest { max_candidate_sequences: 4 } }", batch=1), running_sum("batch", 3)
    )
    server = serve({"hasty": hasty}, options=[POOL])
    report = run_json("doctor", server.http_url, "--pid", str(server.pid), str(server.repository), code=2)
    assert {rule for rule, _ in found(report)} == {"idle-limit"}
    assert len(report["findings"]) == 2
