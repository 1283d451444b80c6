"""The commands of docs/quickstart.md do what the page says, from the build to the answers.

With an ARCHIVE of a release, which go run build.go package --check names, the page is the one in it, and its commands start
with those that unpack the archive and install a tritonserver from PyPI. Nothing of the source is then used but this test.
"""

import os
import platform
import re
import signal
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tritonserver import ROOT, free_ports

ARCHIVE = Path(os.environ["ARCHIVE"]) if "ARCHIVE" in os.environ else None


def page() -> str:
    """The quickstart of the archive, or of the source."""
    if ARCHIVE is None:
        return (ROOT / "docs" / "quickstart.md").read_text()
    with tarfile.open(ARCHIVE) as archive:
        return archive.extractfile(f"{folder_of(ARCHIVE)}/docs/quickstart.md").read().decode()


def folder_of(archive: Path) -> str:
    """The folder that an archive has."""
    return archive.name.removesuffix(".tar.gz")


PAGE = page()
FENCES = re.findall(r"^```(\w*)\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
UNPACK, BUILD, TAKE, MAKE, SERVE, SEND = (text for language, text in FENCES if language == "sh")
INSPECTED, CHECKED = (text for language, text in FENCES if language == "")
(CLIENT,) = (text for language, text in FENCES if language == "python")


@dataclass
class Shell:
    """Runs commands of the page in a folder, with the variables that its first step sets."""

    folder: Path
    start: list[str]  # commands before each of the others
    environment: dict[str, str]

    def run(self, commands: str, timeout: float = 60) -> str:
        command = ["bash", "-e", "-c", "\n".join([*self.start, commands])]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def shell(tmp_path) -> Shell:
    """A shell after the first step of the page: where the source was built, or where an archive was unpacked."""
    if ARCHIVE is None:
        (tmp_path / "build").symlink_to(ROOT / "build")
        built, export = BUILD.splitlines()
        assert built == "go run build.go", "which was done before this test"
        return Shell(tmp_path, [export], dict(os.environ))
    (tmp_path / ARCHIVE.name).symlink_to(ARCHIVE)
    *install, export = UNPACK.replace("x86_64", platform.machine()).splitlines()
    # Only what pip needs to reach PyPI from here is taken over.
    network = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower().endswith("_proxy")}
    clean = network | {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    Shell(tmp_path, [], clean).run("\n".join(install), timeout=600)
    return Shell(tmp_path / folder_of(ARCHIVE), [export], clean)


def reference(audio: np.ndarray, steps: int) -> list[float]:
    """What the model answers to the same audio again and again."""
    (model,) = ROOT.glob("build/venv/lib/python3*/site-packages/silero_vad/data/silero_vad.onnx")
    session, state, answers = onnxruntime.InferenceSession(model), np.zeros((2, 1, 128), np.float32), []
    for _ in range(steps):
        answer, state = session.run(None, {"input": audio.astype(np.float32)[None], "state": state, "sr": np.array(16000)})
        answers.append(answer.item())
    return answers


def test_quickstart(shell):
    assert INSPECTED in shell.run(TAKE)
    assert CHECKED in shell.run(MAKE)
    http, grpc, metrics = free_ports(3)
    ports = f"--http-port={http} --grpc-port={grpc} --metrics-port={metrics}"
    pid = int(shell.run(SERVE.replace("--model-repository", f"{ports} --model-repository") + "\necho $!"))
    try:
        deadline = time.monotonic() + 60
        while "Started Metrics Service" not in (log := (shell.folder / "server.log").read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "| vad   | 1       | READY" in log
        (shell.folder / "client.py").write_text(CLIENT.replace("8001", str(grpc)))
        answers = np.array([line.split() for line in shell.run(SEND).splitlines()], float)
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
