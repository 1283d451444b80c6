"""Variants of the example models, whose configurations are those of NVIDIA's stateful backend, for test_nvidia_*.py."""

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from google.protobuf import text_format
from tritonclient.grpc import InferenceServerClient, model_config_pb2
from tritonclient.utils import InferenceServerException

from conftest import Folder
from tritonserver import MODELS, TritonServer
from unary import infer

ModelConfig = model_config_pb2.ModelConfig
Change = Callable[[ModelConfig], None]

FP32, INT32 = "accumulate_fp32", "accumulate_int32"
MIXED, BOOL_INT8 = "mixed_io_int32_fp16", "mixed_io_bool_int8"


def configuration(base: str) -> ModelConfig:
    """The configuration of an example model."""
    return text_format.Parse((MODELS / base / "config.pbtxt").read_text(), ModelConfig())


def variant(base: str = FP32, change: Change | None = None, extra: str = "", **parameters: str | None) -> Folder:
    """An example model with one instance, and with other parameters; None takes one away."""
    config = configuration(base)
    config.instance_group[0].count = 1
    for name, value in parameters.items():
        if value is None:
            config.parameters.pop(name, None)
        else:
            config.parameters[name].string_value = value
    if change is not None:
        change(config)
    return Folder(text_format.MessageToString(config) + extra, (MODELS / base / "1" / "model.onnx").read_bytes())


def slots(batch: int, candidates: int) -> Change:
    """Batches and candidates of another size."""

    def change(config: ModelConfig) -> None:
        config.max_batch_size = batch
        config.sequence_batching.oldest.max_candidate_sequences = candidates

    return change


# All slots at once, and none of the log lines of every batch.
PLAIN = {
    "initial_buffer_size": None,
    "subsequent_buffer_size": None,
    "buffer_alloc_threshold": None,
    "buffer_dealloc_threshold": None,
    "logging_level": None,
    "batch_info_logging_level": None,
    "detailed_metrics_logging_level": None,
    "metric_logging_frequency_seconds": None,
}


def fours(
    client: InferenceServerClient, model: str, sequence: int | str, value: float = 1, *, dtype: type = np.float32, **flags
) -> float:
    """Sends four equal rows to a variant of FP32, or of INT32 with that type.

    Returns the sum of all rows so far, or 0 where END is not run. The output of the model is the row and the sum.
    """
    output = infer(client, model, sequence, {"Input": np.full((1, 4, 1, 5), value, dtype)}, **flags)["Output"]
    if output.shape == (1, 1, 1):
        assert output.dtype == dtype
        return output[0, 0, 0]
    assert output.shape == (4, 1, 5)
    assert np.all(output == output[0, 0, 0])
    return output[0, 0, 0] - dtype(value)


def together(*calls) -> list:
    """The results of calls that are made at the same time; an exception is a result too."""
    barrier = threading.Barrier(len(calls))

    def at_once(call):
        barrier.wait()
        try:
            return call()
        except InferenceServerException as failure:
            return failure

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(at_once, calls))


def lines(server: TritonServer, *words: str) -> list[str]:
    """The messages in the server's log that hold all the words, without the server's prefix."""
    messages = (re.sub(r'^[IWE]\d+ [^"]*"(.*)"$', r"\1", line) for line in server.log_text().splitlines())
    return [message.replace('\\"', '"') for message in messages if all(word in message for word in words)]


def await_lines(server: TritonServer, count: int, *words: str) -> list[str]:
    """The same, when there are that many, or too few after 10 seconds: some lines are written after the answers."""
    deadline = time.monotonic() + 10
    while len(found := lines(server, *words)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def statistics(server: TritonServer, model: str, requests: int = 0) -> dict:
    """The server's statistics of a model, of the HTTP endpoint; of that many requests, at least.

    Answers are sent before they are counted, so that it can take a moment until the last ones are.
    """
    deadline = time.monotonic() + 10
    while True:
        stats = server.request(f"v2/models/{model}/stats")["model_stats"][0]
        counts = stats["inference_stats"]
        if counts["success"]["count"] + counts["fail"]["count"] >= requests or time.monotonic() > deadline:
            return stats
        time.sleep(0.01)


def outcome(server: TritonServer, model: str, requests: int) -> tuple[int, int]:
    """How many requests have succeeded and failed, as the server counts them, when it has counted that many."""
    counts = statistics(server, model, requests)["inference_stats"]
    return counts["success"]["count"], counts["fail"]["count"]
