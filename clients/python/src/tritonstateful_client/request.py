"""What is sent for a step, and how a connection to a server is made."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype

from .replay import Call, Request

# The header by which a proxy chooses the server: see docs/deploy/envoy.yaml and haproxy.cfg.
HEADER = "stateful-sequence"

# gRPC waits up to two minutes before it tries a lost server again unless it is told otherwise.
CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


def new_key() -> str:
    """A key that no other sequence has."""
    return uuid.uuid4().hex


def new_id() -> int:
    """A correlation ID that no other sequence has, but for a chance of 1 in 2**62."""
    return uuid.uuid4().int >> 66 | 1


def make_request(step: int, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] | None, end: bool, save: bool) -> Request:
    """A request of the arrays, which are copied: a replay sends what they are now."""
    tensors = []
    for name, array in inputs.items():
        datatype = np_to_triton_dtype(array.dtype)
        if datatype is None:
            raise TypeError(f"input {name}: Triton has no type for arrays of {array.dtype}")
        tensors.append(InferInput(name, list(array.shape), datatype).set_data_from_numpy(array))
    wanted = None if outputs is None else [InferRequestedOutput(name) for name in outputs]
    return Request(step, tensors, wanted, end, save, sum(array.nbytes for array in inputs.values()))


def arguments(call: Call, model: str, version: str, key: str, correlation: int | str) -> dict[str, Any]:
    """What tritonclient's infer and async_stream_infer are called with, but for headers and timeouts."""
    request = call.request
    parameters: dict[str, Any] = {"stateful_step": request.step}
    if call.start:
        parameters["stateful_key"] = key
    if call.resume:
        parameters["stateful_resume"] = "try"
    if request.save:
        parameters["stateful_save"] = True
    return {
        "model_name": model,
        "model_version": version,
        "inputs": request.inputs,
        "outputs": request.outputs,
        "sequence_id": correlation,
        "sequence_start": call.start,
        "sequence_end": request.end,
        "parameters": parameters,
    }
