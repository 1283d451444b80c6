"""Streams requests of sequences to a Triton model, through the official client."""

import queue
import time
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferResult, model_config_pb2
from tritonclient.utils import InferenceServerException, triton_to_np_dtype


class StreamError(Exception):
    """The server answered with an error, or not at all."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model."""

    name: str
    datatype: str  # of the protocol, such as FP32
    shape: tuple[int, ...]  # of a request: one lane, so 1 where the configuration has -1; with a leading 1

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(triton_to_np_dtype(self.datatype))

    @property
    def answer_shape(self) -> tuple[int, ...]:
        """The backend answers without the leading 1."""
        return self.shape[1:]

    def zeros(self) -> np.ndarray:
        return np.zeros(self.shape, self.dtype)


@dataclass(frozen=True)
class Model:
    """What a client has to know about a model."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    string_ids: bool  # sequences are called by strings
    infer_end: bool  # a request with the END flag is run like any other

    @classmethod
    def on(cls, client: InferenceServerClient, name: str) -> "Model":
        """Asks the server for the model's configuration."""
        return cls.of(name, client.get_model_config(name).config)

    @classmethod
    def of(cls, name: str, config: model_config_pb2.ModelConfig) -> "Model":
        parameters = {key: value.string_value for key, value in config.parameters.items()}
        return cls(
            name=name,
            inputs=tuple(_tensor(each) for each in config.input),
            outputs=tuple(_tensor(each) for each in config.output),
            string_ids=_has_string_ids(config.sequence_batching),
            infer_end=parameters.get("infer_end_requests") != "0",
        )


def _tensor(config) -> Tensor:
    datatype = model_config_pb2.DataType.Name(config.data_type).removeprefix("TYPE_")
    return Tensor(config.name, datatype, (1, *(max(dim, 1) for dim in config.dims)))


def _has_string_ids(batching) -> bool:
    kind = model_config_pb2.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID
    controls = (control for each in batching.control_input for control in each.control)
    return any(control.kind == kind and control.data_type == model_config_pb2.TYPE_STRING for control in controls)


@dataclass(frozen=True)
class Answer:
    """The server's answer to a request that went well."""

    request: str  # the request's ID
    result: InferResult
    arrived: float  # on time.perf_counter's clock


class Stream:
    """One bidirectional stream. Any number of requests may be on their way, and answers come in any order."""

    def __init__(self, client: InferenceServerClient, timeout: float = 60):
        self._client = client
        self._timeout = timeout
        self._answers: queue.SimpleQueue = queue.SimpleQueue()

    def __enter__(self) -> "Stream":
        self._client.start_stream(self._arrive)
        return self

    def __exit__(self, exception_type, *exception) -> None:
        self._client.stop_stream(cancel_requests=exception_type is not None)

    def send(
        self,
        model: Model,
        sequence: int | str,
        values: dict[str, np.ndarray],
        *,
        request: str = "",
        start: bool = False,
        end: bool = False,
    ) -> None:
        """Sends a request of a sequence and returns at once."""
        inputs = []
        for tensor in model.inputs:
            value = InferInput(tensor.name, list(values[tensor.name].shape), tensor.datatype)
            inputs.append(value.set_data_from_numpy(values[tensor.name]))
        self._client.async_stream_infer(
            model.name, inputs, request_id=request, sequence_id=sequence, sequence_start=start, sequence_end=end
        )

    def receive(self) -> Answer:
        """Waits for the next answer to any request."""
        try:
            result, error, arrived = self._answers.get(timeout=self._timeout)
        except queue.Empty:
            raise StreamError(f"no answer for {self._timeout:g} s") from None
        if error is not None:
            raise StreamError(error.message())
        return Answer(result.get_response().id, result, arrived)

    def _arrive(self, result: InferResult | None, error: InferenceServerException | None) -> None:
        self._answers.put((result, error, time.perf_counter()))
