"""A mistake of ours in Go, of every kind, fails its batch and nothing else; a crash of others is still Triton's.

Uses the library of build/faults, which makes the mistake that a model's configuration asks for (capi/faults_on.go).
The reasons for this (signal handlers, panics) are described in docs/RATIONALE.md.
"""

import re
import signal

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from conftest import Folder
from tritonserver import BACKENDS, MODELS, TritonServer
from unary import infer

FAULTS = BACKENDS.parent.parent / "faults" / "backends"
MODEL = "accumulate_fp32"
STEP = {"Input": np.ones((1, 4, 1, 5), np.float32)}
WARMUP = """
model_warmup [{
  name: "warm"
  batch_size: 1
  inputs { key: "Input" value { data_type: TYPE_FP32 dims: [4, 1, 5] zero_data: true } }
}]
"""


def folder(fault: str, extra: str = "") -> Folder:
    """The example model with one instance that makes a mistake."""
    config = (MODELS / MODEL / "config.pbtxt").read_text()
    config = re.sub(r"instance_group \[.*?\n\]", "instance_group [{ kind: KIND_CPU }]", config, flags=re.S)
    config += f'\nparameters {{ key: "fault_inject" value {{ string_value: "{fault}" }} }}\n{extra}'
    return Folder(config, (MODELS / MODEL / "1" / "model.onnx").read_bytes())


def step(server: TritonServer, **flags) -> float:
    with InferenceServerClient(server.grpc_url) as client:
        return float(infer(client, MODEL, 7, STEP, **flags)["Output"].flat[0])


@pytest.mark.parametrize(
    "loading, fault",
    [
        ("startup", "panic"),
        ("startup", "nil-dereference"),
        ("startup", "bad-address"),
        ("startup", "index"),
        ("explicit", "nil-dereference"),
        ("warmup", "nil-dereference"),
    ],
)
def test_a_fault_fails_its_batch_only(serve, loading: str, fault: str):
    """The second batch of clients fails as INTERNAL; the sequence goes on from its first step.

    Models loaded at start-up have Triton's signal handlers installed over Go's, and with a warm-up the first batch
    runs even before that.
    """
    warm = loading == "warmup"
    failing = 2 + warm
    explicit = loading == "explicit"
    server = serve({MODEL: folder(f"{fault}@{failing}", WARMUP if warm else "")}, backends=FAULTS, explicit=explicit)
    if explicit:
        server.load(MODEL)
    assert step(server, start=True) == 1 + 4
    with pytest.raises(InferenceServerException, match="panic in the stateful backend") as failure:
        step(server)
    assert failure.value.status() == "StatusCode.INTERNAL"
    assert step(server) == 1 + 8
    assert "goroutine" in server.log_text(), "the stack must be in the log"
    assert step(server, end=True) == 0 and server.stop() == 0


def test_a_crash_of_others_reaches_triton(serve):
    """A fault outside of our code ends the server as if our backend were not there: Triton prints its stack."""
    server = serve({MODEL: folder("panic@1000")}, backends=FAULTS)
    step(server, start=True)
    step(server)  # the signal chain is in place by now
    server.signal(signal.SIGSEGV)
    assert server.wait() == -signal.SIGSEGV or server.wait() == 128 + signal.SIGSEGV
    assert "Signal (11)" in server.log_text()
