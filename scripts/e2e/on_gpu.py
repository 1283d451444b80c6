"""Streaming example models in the real tritonserver, with instances on a GPU: every answer is what the CPU says.

scripts/gpu_check.sh runs it; it is not among the tests that run everywhere. Environment variables:

    STATEFUL_BACKENDS   folder with stateful/, in which ONNX Runtime is that for GPUs
    STATEFUL_KIND       KIND_GPU unless given; KIND_CPU tries out this file itself on any machine
    STATEFUL_EP         cuda unless given, or trt
"""

import base64
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

import test_streaming_models
from prometheus import scrape
from test_streaming_models import (  # noqa: F401 - pytest finds them here
    client,
    lstm,
    test_conformer_like,
    test_ensemble,
    test_kv_decoder,
    test_streaming_lstm,
    test_streaming_lstm_with_chunks_of_all_sizes,
)
from tritonserver import MODELS, TritonServer

# Sums of products in another order than the CPU's; TF32 is off.
test_streaming_models.TOLERANCE = TOLERANCE = 1e-4

KIND = os.environ.get("STATEFUL_KIND", "KIND_GPU")
PARAMETERS = {"ort_ep": os.environ.get("STATEFUL_EP", "cuda"), "compute_precision": "fp32"}
NAMES = ["streaming_lstm", "conformer_like", "kv_decoder", "ensemble", "ensemble_first", "ensemble_last"]


def on_gpu(config: str) -> str:
    """The configuration with its instances on a GPU; an ensemble has none."""
    if "instance_group" not in config:
        return config
    parameters = "".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}\n' for k, v in PARAMETERS.items())
    return config.replace("KIND_CPU", KIND) + parameters


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("on_gpu")
    for name in NAMES:
        folder = repository / name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(on_gpu((MODELS / name / "config.pbtxt").read_text()))
        model = MODELS / name / "1" / "model.onnx"
        if model.exists():
            (folder / "1" / "model.onnx").symlink_to(model)
    with TritonServer(repository, Path(os.environ["STATEFUL_BACKENDS"]), timeout=110) as server:
        yield server


def test_metrics_name_the_gpu(server):
    (series,) = [
        s for s in scrape(server.metrics_url, "stateful_").samples["stateful_chunks"] if ("model", "streaming_lstm") in s
    ]
    labels = dict(series)
    assert (KIND == "KIND_GPU") == labels.get("gpu_uuid", "").startswith("GPU-")


@pytest.mark.skipif(KIND != "KIND_GPU", reason="needs the memory of a GPU")
def test_cuda_shared_memory(server, client: InferenceServerClient):
    """A request and its answer stay on the GPU: the client's memory there is read and written."""
    memory = DeviceMemory(1 << 16)
    client.register_cuda_shared_memory("ours", memory.handle, 0, memory.size)
    random = np.random.default_rng(1)
    steps = [{"x": random.standard_normal((1, 3, 8)).astype(np.float32)} for _ in range(5)]
    for at, (step, want) in enumerate(zip(steps, lstm().answers(steps), strict=True)):
        memory.write(step["x"])
        x = InferInput("x", [1, 3, 8], "FP32")
        x.set_shared_memory("ours", step["x"].nbytes)
        y = InferRequestedOutput("y")
        y.set_shared_memory("ours", want["y"].nbytes, offset=1 << 15)
        client.infer("streaming_lstm", [x], outputs=[y], sequence_id=999, sequence_start=at == 0, sequence_end=at == 4)
        np.testing.assert_allclose(memory.read(want["y"], 1 << 15), want["y"], rtol=TOLERANCE, atol=TOLERANCE)
    client.unregister_cuda_shared_memory("ours")


class DeviceMemory:
    """Memory of GPU 0 that another process can be given, by the driver's own calls."""

    def __init__(self, size: int):
        self.size = size
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, handle = ctypes.c_void_p(), ctypes.create_string_buffer(64)
        self.address = ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(size))
        self.call("cuIpcGetMemHandle", handle, self.address)
        self.handle = base64.b64encode(handle.raw)

    def call(self, name: str, *arguments) -> None:
        assert getattr(self.cuda, name)(*arguments) == 0, name

    def write(self, array: np.ndarray) -> None:
        data = array.tobytes()
        self.call("cuMemcpyHtoD_v2", self.address, data, ctypes.c_size_t(len(data)))

    def read(self, like: np.ndarray, offset: int) -> np.ndarray:
        data = ctypes.create_string_buffer(like.nbytes)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(self.address.value + offset), ctypes.c_size_t(like.nbytes))
        return np.frombuffer(data.raw, like.dtype).reshape(like.shape)
