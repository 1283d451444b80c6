"""Free sequences: states under the dynamic batcher, which knows nothing of sequences."""

import time

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from configs import CPU, config, free, io
from conftest import Folder
from graphs import running_sum

F32 = np.float32
X, Y = io("x", "FP32", 3), io("y", "FP32", 3)
WARM_UP = """model_warmup [{
  name: "zeros" batch_size: 2 count: 3 inputs { key: "x" value { data_type: TYPE_FP32 dims: [3] zero_data: true } }
}]"""

MODELS = {
    "start": Folder(config([X], [Y], free(), group=f"{CPU}\n{WARM_UP}"), running_sum("batch", 3)),
    "implicit": Folder(config([X], [Y], free(), begin="implicit"), running_sum("batch", 3)),
    "short": Folder(config([X], [Y], free(0, idle=500)), running_sum("batch", 3)),
    "one": Folder(config([X], [Y], free(8)), running_sum("batch", 3)),
}


def request(value: float) -> list[InferInput]:
    x = InferInput("x", [1, 3], "FP32")
    x.set_data_from_numpy(np.full((1, 3), value, F32))
    return [x]


def step(client: InferenceServerClient, model: str, sequence: int | str, value: float, **flags) -> float:
    """The first element of the answer to a request."""
    answer = client.infer(model, request(value), sequence_id=sequence, client_timeout=20, **flags)
    return answer.as_numpy("y")[0, 0]


def refused(client: InferenceServerClient, model: str, sequence: int | str, code: str, **flags) -> str:
    with pytest.raises(InferenceServerException) as refusal:
        step(client, model, sequence, 1, **flags)
    assert code in str(refusal.value.status())
    return str(refusal.value)


def test_start(own_client: InferenceServerClient):
    """A sequence begins with START; the error of one that has not names its ID and has a code of its own."""
    assert "sequence 7: no such sequence is known; begin it again with a START" in refused(own_client, "start", 7, "NOT_FOUND")
    assert step(own_client, "start", 7, 1, sequence_start=True) == 1
    assert step(own_client, "start", 7, 2) == 3
    assert step(own_client, "start", 7, 5, sequence_start=True) == 5  # anew
    assert step(own_client, "start", 7, 1, sequence_end=True) == 6
    refused(own_client, "start", 7, "NOT_FOUND")
    assert step(own_client, "start", "seven", 1, sequence_start=True) == 1
    assert step(own_client, "start", "seven", 1, sequence_end=True) == 2
    assert "no correlation ID" in refused(own_client, "start", 0, "INVALID_ARGUMENT")


def test_implicit(own_client: InferenceServerClient):
    """The first request of an ID begins its sequence, and one without ID is one of its own."""
    assert [step(own_client, "implicit", 7, 1) for _ in range(3)] == [1, 2, 3]
    assert step(own_client, "implicit", 7, 1, sequence_end=True) == 4
    assert step(own_client, "implicit", 7, 1) == 1
    assert [step(own_client, "implicit", 0, 1) for _ in range(3)] == [1, 1, 1]


def test_idle(own_client: InferenceServerClient):
    """A sequence whose client is gone ends without traffic."""
    step(own_client, "short", 7, 1, sequence_start=True)
    time.sleep(8)
    assert "its state expired" in refused(own_client, "short", 7, "NOT_FOUND")
