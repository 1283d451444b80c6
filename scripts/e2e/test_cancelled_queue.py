"""What Triton answers to requests that wait in its queue after a cancelled one of their sequence."""

import queue
import time

import grpc
import numpy as np
from tritonclient.grpc import InferenceServerClient, service_pb2, service_pb2_grpc

from configs import config, io, oldest
from conftest import Folder
from graphs import running_sum
from unary import tensor

SUM = Folder(
    config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(4, delay=1_000_000), state_pairs="<<<s, s_out>>>"),
    running_sum("batch", 3),
)
X = tensor("x", np.ones((1, 3), np.float32))


def step(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> grpc.Future:
    """A request of sequence 7, whose answer is on its way."""
    request = service_pb2.ModelInferRequest(model_name="sum", inputs=[X._get_tensor()], raw_input_contents=[X._get_content()])
    request.parameters["sequence_id"].int64_param = 7
    return stub.ModelInfer.future(request)


def test_what_waits_after_a_cancelled_request_is_cancelled_without_a_text(serve):
    """So that a soak's oracle (oracle.py) may take an empty answer after a cancelled request for that.

    Each step waits a second for others to share its run. While the first one does, three wait after it in their sequence;
    the first of these is cancelled.
    """
    server = serve({"sum": SUM})
    answers: queue.Queue = queue.Queue()
    with InferenceServerClient(server.grpc_url) as client, grpc.insecure_channel(server.grpc_url) as channel:
        client.infer("sum", [X], sequence_id=7, sequence_start=True)
        client.start_stream(lambda result, error: answers.put((result, error)))
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        first = step(stub)
        time.sleep(0.1)
        cancelled = step(stub)
        time.sleep(0.1)
        later = step(stub)
        time.sleep(0.1)
        client.async_stream_infer("sum", [X], sequence_id=7, request_id="in a stream")
        time.sleep(0.1)
        cancelled.cancel()
        assert first.result(timeout=10).model_name == "sum"
        assert later.exception(timeout=10) is not None
        assert later.code() == grpc.StatusCode.CANCELLED
        assert later.details() == ""
        result, error = answers.get(timeout=10)
        client.stop_stream()
    assert error is None
    assert (result.get_response().id, list(result.get_response().outputs)) == ("in a stream", [])
