"""The commands of docs/quickstart.md do what the page says, from the build to the answers."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import onnxruntime
import pytest

from tritonserver import ROOT, free_ports

PAGE = (ROOT / "docs" / "quickstart.md").read_text()
FENCES = re.findall(r"^```(\w*)\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
UNPACK, BUILD, TAKE, MAKE, SERVE, SEND = (text for language, text in FENCES if language == "sh")
INSPECTED, CHECKED = (text for language, text in FENCES if language == "")
(CLIENT,) = (text for language, text in FENCES if language == "python")


@pytest.fixture
def shell(tmp_path):
    """Runs commands of the page in a folder that has the build, as that of the source does."""
    (tmp_path / "build").symlink_to(ROOT / "build")
    built, export = BUILD.splitlines()
    assert built == "go run build.go", "which was done before this test"

    def run(commands: str) -> str:
        command = ["bash", "-e", "-c", f"{export}\n{commands}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def reference(audio: np.ndarray, steps: int) -> list[float]:
    """What the model answers to the same audio again and again."""
    (model,) = ROOT.glob("build/venv/lib/python3*/site-packages/silero_vad/data/silero_vad.onnx")
    session, state, answers = onnxruntime.InferenceSession(model), np.zeros((2, 1, 128), np.float32), []
    for _ in range(steps):
        answer, state = session.run(None, {"input": audio.astype(np.float32)[None], "state": state, "sr": np.array(16000)})
        answers.append(answer.item())
    return answers


def test_quickstart(shell, tmp_path):
    assert INSPECTED in shell(TAKE)
    assert CHECKED in shell(MAKE)
    http, grpc, metrics = free_ports(3)
    ports = f"--http-port={http} --grpc-port={grpc} --metrics-port={metrics}"
    pid = int(shell(SERVE.replace("--model-repository", f"{ports} --model-repository") + "\necho $!"))
    try:
        deadline = time.monotonic() + 60
        while "Started Metrics Service" not in (log := (tmp_path / "server.log").read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "| vad   | 1       | READY" in log
        (tmp_path / "client.py").write_text(CLIENT.replace("8001", str(grpc)))
        answers = np.array([line.split() for line in shell(SEND).splitlines()], float)
    finally:
        os.kill(pid, signal.SIGKILL)
    noise = np.random.default_rng(1).normal(0, 0.1, 576)
    want = np.transpose([reference(np.zeros(576), 5), reference(noise, 5)])
    np.testing.assert_allclose(answers, want, atol=1e-4)
    assert (np.diff(want, axis=0) != 0).all()


def test_an_archive_is_unpacked_with_the_packages_that_are_tested():
    """The archive itself is tested by go run build.go package --check."""
    pinned = (ROOT / "scripts" / "requirements-nodeps.txt").read_text().split()
    named = re.findall(r"[\w-]+==[\d.]+", UNPACK)
    assert len(named) == 2 and set(named) <= set(pinned)
    (version,) = re.findall(r'const Number = "(.*)"', (ROOT / "internal" / "version" / "version.go").read_text())
    assert UNPACK.count(f"tritonstateful-{version}-linux-x86_64-cpu") == 2
