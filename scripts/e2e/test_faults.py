"""A mistake of ours in Go, of every kind, fails its batch and nothing else; a crash of others is still Triton's.

Uses the library of build/faults, which makes the mistake that a model's configuration asks for (capi/faults_on.go).
The reasons for this (signal handlers, panics) are described in docs/RATIONALE.md.
"""

import signal

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest, under
from conftest import Folder
from graphs import running_sum
from tritonserver import BACKENDS, TritonServer
from unary import infer

FAULTS = BACKENDS.parent.parent / "faults" / "backends"
SCHEDULERS = ["oldest", "direct", "free"]
WARMUP = """
model_warmup [{
  name: "warm"
  batch_size: 1
  inputs { key: "x" value { data_type: TYPE_FP32 dims: [3] zero_data: true } }
}]
"""


def folders(fault: str, extra: str = "") -> dict[str, Folder]:
    """A running sum with each scheduler, whose one instance makes a mistake."""
    text = config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0), fault_inject=fault) + extra
    return {scheduler: Folder(under(text, scheduler), running_sum("batch", 3)) for scheduler in SCHEDULERS}


def step(server: TritonServer, model: str, **flags) -> float:
    with InferenceServerClient(server.grpc_url) as client:
        return float(infer(client, model, 7, {"x": np.ones((1, 3), np.float32)}, **flags)["y"].flat[0])


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
    server = serve(folders(f"{fault}@{failing}", WARMUP if warm else ""), backends=FAULTS, explicit=explicit)
    for model in SCHEDULERS:
        if explicit:
            server.load(model)
        assert step(server, model, start=True) == 1
        with pytest.raises(InferenceServerException, match="panic in the stateful backend") as failure:
            step(server, model)
        assert failure.value.status() == "StatusCode.INTERNAL"
        assert step(server, model) == 2
        assert step(server, model, end=True) == 3
    assert server.log_text().count("goroutine ") >= len(SCHEDULERS), "the stacks must be in the log"
    assert server.stop() == 0


def test_a_crash_of_others_reaches_triton(serve):
    """A fault outside of our code ends the server as if our backend were not there: Triton prints its stack."""
    server = serve({"oldest": folders("panic@1000")["oldest"]}, backends=FAULTS)
    step(server, "oldest", start=True)
    step(server, "oldest")  # the signal chain is in place by now
    server.signal(signal.SIGSEGV)
    assert server.wait() == -signal.SIGSEGV or server.wait() == 128 + signal.SIGSEGV
    assert "Signal (11)" in server.log_text()
