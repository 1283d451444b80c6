"""The command tritonstateful with real servers. What it does without one is tested in internal/cli."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

import audio
import recipes
import vad
from configs import config, free, io, oldest, parameter
from conftest import Folder
from graphs import running_sum
from test_saved_states import Client, saved
from test_vad import by_onnxruntime
from tritonserver import NO_METRICS, ROOT, TritonServer

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


def test_doctor_of_an_ill_server(serve, tmp_path):
    """A server with as many of the faults as this version can have. One of its models it refuses itself."""
    hasty = Folder(
        config([X], [Y], "sequence_batching { oldest { max_candidate_sequences: 4 } }", batch=1), running_sum("batch", 3)
    )
    stored = parameter("state_store", f"file:{tmp_path / 'states'}")
    short = Folder(f'backend: "stateful" {oldest(0, candidates=4)} {stored}', running_sum("batch", 3))
    levels = free(0, more="priority_levels: 2 default_priority_level: 1")
    waits = Folder(config([X], [Y], levels), running_sum("batch", 3))
    cached = Folder(config([X], [Y], free(0)) + "response_cache { enable: true }", running_sum("batch", 3))
    (other,) = ROOT.glob("build/venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*")
    options = [POOL, "--exit-on-error=false", "--strict-readiness=false", "--backend-config=stateful,default-max-batch-size=16"]
    env = {"LD_PRELOAD": str(other), "ORT_DISABLE_TELEMETRY": ""}
    server = serve({"hasty": hasty, "short": short, "waits": waits, "cached": cached}, options=options, env=env)
    process = f"process {server.pid}"
    running = run_json("doctor", server.http_url, "--pid", str(server.pid), code=2)
    assert found(running) == {
        ("idle-limit", "model hasty"),  # Triton has filled it in
        ("queue-policy", "model waits"),
        ("header-forward", process),
        ("default-max-batch-size", process),
        ("onnxruntimes", process),
        ("telemetry", process),
    }
    files = run_json("doctor", str(server.repository), code=2)
    where = {(rule, Path(file).parent.name) for rule, file in found(files)}
    assert where == {("idle-limit", "hasty"), ("queue-policy", "waits"), ("response-cache", "cached")}
    assert "remove response_cache" in server.log_text()


def test_load(serve):
    """What the command sent is what the server counted; an objective that no server meets is missed."""
    summing = Folder(config([X], [Y], oldest(0, candidates=64), batch=8), running_sum("batch", 3))
    server = serve({"summing": summing}, options=[POOL])
    load = ["load", f"grpc://{server.grpc_url}", "summing", "--sequences", "8", "--rate", "20/s", "--steps", "5"]
    load += ["--duration", "1s", "--warmup", "0s", "--slo", "p99=5s"]
    assert run_json(*load, "--stream")["failed"] == 0
    before = requests(server, "summing")
    result = run_json(*load)
    assert result["failed"] == 0 and abs(result["steps"] + result["unsent"] - 160) < 40, result
    assert requests(server, "summing") - before >= result["steps"]
    assert "missed" in run(*load, "--slo", "p50=1us", code=2)


def requests(server: TritonServer, model: str) -> int:
    """How many requests the server has answered."""
    with InferenceServerClient(server.grpc_url) as client:
        return client.get_inference_statistics(model).model_stats[0].inference_stats.success.count


def test_load_resumes(serve, tmp_path):
    """A server is killed and started again under load, and its clients notice nothing but the time."""
    store = {"state_store": f"file:{tmp_path / 'states'}", "checkpoint": "steps=2"}
    summing = Folder(config([X], [Y], oldest(0, candidates=64), batch=8, **store), running_sum("batch", 3))
    server = serve({"summing": summing}, options=[POOL], ports=free_ports())
    load = [COMMAND, "load", f"grpc://{server.grpc_url}", "summing", "--sequences", "8", "--rate", "20/s", "--steps", "1000"]
    load += ["--duration", "3s", "--warmup", "0s", "--resume", "--json"]
    load += ["--kill", str(server.pid), "--restart", f"touch {tmp_path / 'killed'}"]
    with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 60
        while not (tmp_path / "killed").exists():
            assert time.monotonic() < deadline, "the server was not killed"
            time.sleep(0.01)
        killed = time.monotonic()
        server.kill()  # it is dead: this waits for it
        time.sleep(0.3)
        gone = time.monotonic() - killed
        server.start()
        result = json.loads(running.stdout.read())
    assert running.returncode == 0 and result["failed"] == 0, result
    assert result["resumed"] >= 8, result
    (kill,) = result["kills"]
    assert kill["slowest_ms"] >= 1000 * (gone - 1 / 20), result  # each sequence had a step due in its first 1/20 s


def test_state_of_a_live_server(serve, tmp_path):
    """States are exported from one store and imported into another, from which the sequence goes on; a drop is noticed."""
    stores = {name: f"file:{tmp_path / name}" for name in ("one", "two")}
    models = {
        name: Folder(config([X], [Y], oldest(0), state_store=url, checkpoint="request"), running_sum("batch", 3))
        for name, url in stores.items()
    }
    server = serve(models, options=[POOL])
    one, two = Client(server, "one"), Client(server, "two")
    one(7, 1, start=True)
    assert saved(one, 7, 2, 2) == 3
    one(8, 5, start=True, stateful_key="a\x1b[31mb", stateful_save=True)
    listed = run_json("state", "list", stores["one"])["sequences"]
    assert {(each["key"], each["steps"]) for each in listed} == {("one/1:7", 2), (r'one/1:@"a\x1b[31mb"', 1)}
    archive = str(tmp_path / "states.tar")
    run("state", "export", stores["one"], "--namespace", "one/1", "--to", archive)
    assert len(run_json("state", "import", stores["two"], archive, "--namespace", "two/1")["keys"]) == 2
    assert two(7, 3, start=True, stateful_resume="require")[0] == 6
    assert two(9, 3, start=True, stateful_key="a\x1b[31mb", stateful_resume="require")[0] == 8
    assert one(7, 4)[0] == 7  # its own goes on, too
    run("state", "drop", stores["one"], "one/1:7", "--take-over")
    with pytest.raises(InferenceServerException, match="taken over"):
        saved(one, 7, 1, 4)
    assert run_json("state", "show", stores["one"], "one/1:7")["bytes"] == 0
    for client, sequence in ((one, 8), (two, 7), (two, 9)):  # the server would wait for them
        client(sequence, 0, end=True)
    with pytest.raises(InferenceServerException):
        one(7, 0, end=True)


def free_ports() -> tuple[int, int, int]:
    """Three ports that no one has now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return tuple(each.getsockname()[1] for each in sockets)


@pytest.mark.parametrize("name", [*recipes.THREE_LINES, *recipes.NEED_MORE])
def test_recipes(name: str, tmp_path):
    """docs/recipes.md, from an exported file to a checked model: init and check, without a server."""
    case = (recipes.THREE_LINES | recipes.NEED_MORE)[name]
    exported = tmp_path / "m.onnx"
    exported.write_bytes(case.model.SerializeToString())
    init = ["init", str(exported), "--repository", str(tmp_path / "models")]
    if name in recipes.NEED_MORE:
        (tmp_path / "config.pbtxt").write_text(recipes.BLOCKS[name])
        init += ["--config", str(tmp_path / "config.pbtxt")]
    for path, content in case.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    run(*init)
    assert (tmp_path / "models" / "m" / "1" / "model.onnx").exists()
    result = run_json("check", str(tmp_path / "models" / "m"), "--steps", "4", "--lanes", "3")
    assert result["results"]


def test_silero_by_its_page(tmp_path, monkeypatch):
    """docs/recipes.md alone, from the package of Silero VAD to a stream that is answered: only pip's file is there already."""
    began = time.monotonic()
    page = (ROOT / "docs" / "recipes.md").read_text()
    blocks = dict(re.findall(r"<!-- silero: (.*?) -->\n```\w+\n(.*?)```", page, re.DOTALL))
    wheel = tmp_path / "silero_vad-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(vad.model_file(), "silero_vad/data/silero_vad.onnx")
    monkeypatch.setenv("PATH", os.pathsep.join([str(COMMAND.parent), str(Path(sys.executable).parent), os.environ["PATH"]]))
    downloaded, commands = blocks["before the server"].split("\n", 1)
    assert downloaded == "pip download --no-deps silero-vad"
    bash = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True, "timeout": 60}
    assert "\npassed\n" in subprocess.run(["bash", "-ec", commands], **bash).stdout

    samples = audio.made_up()[: 512 * 60]
    (tmp_path / "stream.py").write_text(blocks["client"])
    with wave.open(str(tmp_path / "call.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((samples * 32768).astype("<i2").tobytes())
    with TritonServer(tmp_path / "model_repository", options=[NO_METRICS, "--log-info=false"]) as server:
        stream = blocks["after the server"].replace("localhost:8001", server.grpc_url)
        printed = subprocess.run(["bash", "-ec", stream], **bash).stdout
    speech = [float(line.split()[-1]) for line in printed.splitlines()]
    np.testing.assert_allclose(speech, by_onnxruntime((samples * 32768).astype("<i2").astype(np.float32) / 32768), atol=1e-3)
    assert max(speech) > 0.5, "there must be speech"
    assert time.monotonic() - began < 120


def test_migrated_there_and_back(tmp_path):
    """One model with its states declared in every way that migrate writes: all are served, with equal answers."""
    tmp_path.joinpath("models").mkdir()
    short = Folder('backend: "stateful"\n' + oldest(0, candidates=4), running_sum("batch", 3))
    ways = {
        "short": [],
        "nvidia": [("--to", "nvidia")],
        "from_nvidia": [("--to", "nvidia"), ()],
        "from_triton": [("--to", "triton"), ()],
        "pairs": [("--to", "triton"), ("--pairs",)],
        "round": [("--to", "triton"), ("--pairs",), ("--to", "nvidia"), ("--to", "triton"), ()],
    }
    for name, steps in ways.items():
        short.write(tmp_path / "models" / name)
        for step in steps:
            done = subprocess.run(
                [COMMAND, "migrate", tmp_path / "models" / name, "--write", *step], capture_output=True, text=True
            )
            assert done.returncode == (2 if "nvidia" in step else 0), done.stdout + done.stderr
            assert done.stdout.startswith("--- ") or "nothing to change" in done.stdout
    texts = {name: (tmp_path / "models" / name / "config.pbtxt").read_text() for name in ways}
    assert "state_pairs" in texts["nvidia"] and "state_pairs" in texts["pairs"] and "state [" in texts["from_triton"]
    with (
        TritonServer(tmp_path / "models", options=[POOL, NO_METRICS]) as server,
        InferenceServerClient(server.grpc_url) as client,
    ):
        for name in ways:
            for sequence in (1, 2):
                for step in range(3):
                    sent = np.full((1, 3), sequence + step, np.float32)
                    x = InferInput("x", [1, 3], "FP32")
                    x.set_data_from_numpy(sent)
                    answer = client.infer(name, [x], sequence_id=sequence, sequence_start=step == 0, sequence_end=step == 2)
                    want = sum(sequence + at for at in range(step + 1))
                    np.testing.assert_array_equal(answer.as_numpy("y"), np.full((1, 3), want), err_msg=name)
