"""The backend without a GPU: with no driver, and with an NVML that has few of the functions that go-nvml knows.

go-nvml is linked into the backend and leaves hundreds of functions to be found when they are called. Triton asks for
all of them when it opens a library; that the backend loads all the same, these tests show.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient

from conftest import Folder
from tritonserver import BACKENDS, MODELS, ROOT, ServerError, TritonServer
from unary import infer

MODEL = "accumulate_fp32"
STEP = {"Input": np.ones((1, 4, 1, 5), np.float32)}
NVML = ROOT / "internal" / "gpuinfo" / "testdata" / "nvml.c"


def serves(server: TritonServer) -> None:
    with InferenceServerClient(server.grpc_url) as client:
        infer(client, MODEL, 7, STEP, start=True)
        infer(client, MODEL, 7, STEP, end=True)


def symbols() -> str:
    library = BACKENDS / "stateful" / "libtriton_stateful_go.so"
    return subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout


def test_nvml_is_open_and_cuda_is_not() -> None:
    """The library leaves NVML's functions open, which is the trap; nothing of CUDA is asked for when it is opened."""
    assert symbols().count(" U nvml") > 100
    assert " U cu" not in symbols()
    needed = subprocess.run(
        ["readelf", "-d", BACKENDS / "stateful" / "libtriton_stateful_go.so"], check=True, capture_output=True, text=True
    ).stdout
    assert "cuda" not in needed
    assert "nvidia" not in needed


def test_without_a_driver(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    env = {"LD_LIBRARY_PATH": str(tmp_path / "none")}
    with TritonServer(explicit=True, env=env, options=["--log-verbose=1"]) as server:
        server.load(MODEL)
        serves(server)
        log = server.log.read_text()
    if "GPU 0 of the machine" in log:
        pytest.skip("this machine has an NVIDIA driver, so that it cannot be shown what happens without one")
    assert "could not list the GPUs" in log
    assert "libnvidia-ml.so.1: cannot open shared object file" in log


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param([], "GPU 0 of the machine: Fake GPU, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", id="few functions"),
        pytest.param(["-DHAS_MIG"], "1.5 of 8.0 GiB free, split (MIG)", id="split"),
        pytest.param(["-DLACKS_NAME"], "libnvidia-ml.so.1 lacks nvmlDeviceGetName", id="one too few"),
    ],
)
def test_with_half_an_nvml(tmp_path: Path, flags: list[str], said: str) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", NVML, "-o", library], check=True)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    # The server's own metrics of GPUs use NVML too, and wait for ever for what this one lacks.
    with TritonServer(explicit=True, env=env, options=["--log-verbose=1", "--allow-gpu-metrics=false"]) as server:
        server.load(MODEL)
        serves(server)
        log = server.log.read_text()
    assert said in log


def test_model_for_a_gpu(tmp_path: Path) -> None:
    """A model for a GPU fails to load on a machine without one, and the server goes on."""
    config = (MODELS / MODEL / "config.pbtxt").read_text()
    head, _, _ = config.partition("instance_group")
    gpu = Folder(
        f"{head}\ninstance_group [{{ kind: KIND_GPU gpus: [0] }}]\n"
        'parameters { key: "state_pairs" value { string_value: "<<<Accumulate_In, Accumulate_Out>>>" } }\n',
        (MODELS / MODEL / "1" / "model.onnx").read_bytes(),
    )
    gpu.write(tmp_path / "on_gpu")
    Folder(config, (MODELS / MODEL / "1" / "model.onnx").read_bytes()).write(tmp_path / MODEL)
    with TritonServer(tmp_path, explicit=True) as server:
        with pytest.raises(ServerError) as refused:
            server.load("on_gpu")
        assert "GPU" in str(refused.value)
        server.load(MODEL)
        serves(server)


def gpu_check(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", ROOT / "scripts" / "gpu_check.sh", *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_checks_on_a_gpu_say_what_they_need(tmp_path: Path) -> None:
    helped = gpu_check("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--ort FILE" in helped.stdout
    assert gpu_check("--nonsense").returncode == 2
    begun = gpu_check("--ort", str(tmp_path / "nothing"), LD_LIBRARY_PATH=str(tmp_path))
    assert begun.returncode == 2
    if "there is no file" in begun.stderr:
        pytest.skip("this machine has an NVIDIA driver, so that it cannot be shown what happens without one")
    assert "no CUDA driver" in begun.stderr
    assert "install NVIDIA's driver" in begun.stderr


def test_checks_of_the_server_on_a_gpu() -> None:
    """What gpu_check.sh does with a tritonserver, on the CPU."""
    env = {"STATEFUL_KIND": "KIND_CPU", "STATEFUL_BACKENDS": str(BACKENDS)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", ROOT / "scripts" / "e2e" / "on_gpu.py"],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "6 passed, 1 skipped" in done.stdout) == (0, True), done.stdout
