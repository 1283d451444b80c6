"""scripts/test.py as its user runs it: in a checkout of its own, with the system's Python."""

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from onnx import ModelProto

import generate
from tritonserver import MODELS, ROOT

# The interpreter that build/venv was made with; by -S without packages installed for it.
PYTHON = [str(Path(sys.base_prefix) / "bin" / "python3"), "-S"]
MODEL = "accumulate_fp32"
SMALL = ["--no-build", "--model", MODEL, "--sequences", "2", "--steps", "2"]
REMEDY = "leave out --no-build, or run go run build.go"


def adding() -> ModelProto:
    return generate.EXAMPLES[MODEL].model()


def subtracting() -> ModelProto:
    """A model that loads and answers with wrong numbers."""
    wrong = adding()
    next(node for node in wrong.graph.node if node.name == "Add_Out").op_type = "Sub"
    return wrong


def checkout(folder: Path, onnx: bytes, *, built: bool = True) -> Path:
    """A checkout with this one's scripts and build, and one model."""
    (folder / "scripts").mkdir()
    for script in (ROOT / "scripts").glob("*.py"):
        shutil.copy(script, folder / "scripts")
    (folder / "models" / MODEL / "1").mkdir(parents=True)
    shutil.copy(MODELS / MODEL / "config.pbtxt", folder / "models" / MODEL)
    (folder / "models" / MODEL / "1" / "model.onnx").write_bytes(onnx)
    if built:
        (folder / "build").symlink_to(ROOT / "build")
    return folder


def start(root: Path, *options: str) -> subprocess.Popen:
    command = [*PYTHON, "scripts/test.py", *options]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(root: Path, *options: str) -> tuple[int, str]:
    """The exit code, and all that is printed."""
    with start(root, *options) as process:
        output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_tests_what_was_built_before(tmp_path):
    code, output = run(checkout(tmp_path, adding().SerializeToString()), *SMALL)
    assert code == 0, output
    assert "no mistakes" in output
    assert output.endswith("\nPASSED\n")
    assert "end of the server's log" not in output


def test_says_what_to_do_if_nothing_was_built(tmp_path):
    code, output = run(checkout(tmp_path, b"", built=False), *SMALL)
    assert code == 1
    assert output == f"test.py: nothing was built yet, there is no build/venv/bin/python: {REMEDY}\n"


def test_says_what_to_do_if_the_build_was_not_finished(tmp_path):
    """The environment is there, its packages are not."""
    root = checkout(tmp_path, b"", built=False)
    subprocess.run([*PYTHON, "-m", "venv", "--without-pip", str(root / "build" / "venv")], check=True)
    code, output = run(root, *SMALL)
    assert code == 1
    assert output == f"test.py: build/venv has no numpy, its build was not finished: {REMEDY}\n"


def test_wrong_answers_fail_and_show_the_end_of_the_log(tmp_path):
    code, output = run(checkout(tmp_path, subtracting().SerializeToString()), *SMALL)
    assert code == 1
    assert re.search(r"sequence \d+, step 0: Output is \S+ at \[0, 0, 0\], want \S+; 20 of 20 elements", output)
    assert re.search(rf"^{MODEL} .* FAILED$", output, re.MULTILINE)
    log, shown = re.search(r"The end of the server's log, (.*):\n(.*)\n\nFAILED\n$", output, re.DOTALL).groups()
    assert f"running inference model={MODEL}" in shown.splitlines()[-1]
    assert shown in Path(log).read_text()


def test_a_model_that_is_refused_fails_and_shows_the_end_of_the_log(tmp_path):
    code, output = run(checkout(tmp_path, b"this is no model"), *SMALL)
    assert code == 1
    assert "tritonserver ended with code 1 before it was ready. The end of its log, " in output
    assert "parsing failed" in output
    assert output.endswith("\n\nFAILED\n")


def is_ready(url: str) -> bool:
    with closing(http.client.HTTPConnection(url, timeout=10)) as connection:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == http.client.OK


@pytest.mark.parametrize(("model", "verdict", "code"), [(adding, "PASSED", 0), (subtracting, "FAILED", 1)])
def test_keeps_serving_until_it_is_interrupted(tmp_path, model, verdict, code):
    with start(checkout(tmp_path, model().SerializeToString()), *SMALL, "--keep-serving") as process:
        printed = ""
        while "Ctrl-C stops it" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        assert f"\n{verdict}\n" in printed
        url = re.search(r"^HTTP +http://(\S+)$", printed, re.MULTILINE)[1]
        assert is_ready(url)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == code
    with pytest.raises(ConnectionRefusedError):
        is_ready(url)


def old_python(version: str) -> list[str]:
    """An interpreter that releases promise to run with, and the tests of the source do not need."""
    name = f"python{version}"
    if subprocess.run(["sh", "-c", f"{name} -c ''"], capture_output=True).returncode != 0:
        pytest.skip(f"there is no {name}")
    return [name, "-S"]


WITHOUT_PACKAGES = """
import sys, unittest.mock
for name in ("numpy", "tritonclient", "tritonclient.grpc", "tritonclient.utils"):
    sys.modules[name] = unittest.mock.MagicMock()
import smoke
"""


def test_the_python_of_ubuntu_22_runs_what_is_in_a_release(tmp_path):
    """Images of tritonserver before 24.11 have it."""
    python = old_python("3.10")
    subprocess.run([*python, "-c", WITHOUT_PACKAGES], cwd=ROOT / "scripts", check=True)
    command = [*python, str(ROOT / "scripts" / "tritonserver.py"), "--repository", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        printed = []
        for line in process.stdout:
            printed.append(line)
            if "Ctrl-C stops it" in line:
                process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0, printed


def test_an_old_python_adds_onnx_runtime():
    script = ROOT / "scripts" / "release" / "add_onnxruntime_gpu.py"
    done = subprocess.run([*old_python("3.9"), str(script), "--backend", "/"], capture_output=True, text=True)
    assert done.returncode == 2 and "name the folder of the backend" in done.stderr
