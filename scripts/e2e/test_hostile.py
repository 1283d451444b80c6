"""Requests that no honest client sends, over gRPC and HTTP: each gets an error, and the sequences of others go on."""

import json
import struct
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from configs import config, io
from conftest import Folder
from graphs import model, op, running_sum, tensor
from unary import infer

F32 = np.float32


def strings():
    return model(
        op("Identity", "t -> u"),
        op("Add", "s x -> s_out"),
        inputs=[tensor("t", object, "batch", 2), tensor("x", F32, "batch", 1), tensor("s", F32, "batch", 1)],
        outputs=[tensor("u", object, "batch", 2), tensor("s_out", F32, "batch", 1)],
    )


def recurrent():
    """A GRU over rows; ONNX Runtime ends the process if there are none."""
    random = np.random.default_rng(0)
    return model(
        op("Transpose", "rows -> by_time", perm=[1, 0, 2]),
        op("GRU", "by_time w r . . h -> every h_out", hidden_size=2),
        op("Squeeze", "h_out zero -> y"),
        inputs=[tensor("rows", F32, "batch", "time", 3), tensor("h", F32, 1, "batch", 2)],
        outputs=[tensor("y", F32, "batch", 2), tensor("h_out", F32, 1, "batch", 2)],
        constants={
            "w": random.standard_normal((1, 6, 3)).astype(F32),
            "r": random.standard_normal((1, 6, 2)).astype(F32),
            "zero": np.array([0]),
        },
    )


def linear_attention():
    """An Einsum over the rows of a request; ONNX Runtime ends the process if there are none."""
    return model(
        op("Einsum", "rows rows -> products", equation="btc,btd->bcd"),
        op("ReduceSum", "products last -> sums", keepdims=0),
        op("Add", "sums s -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("rows", F32, "batch", "time", 3), tensor("s", F32, "batch", 3)],
        outputs=[tensor("y", F32, "batch", 3), tensor("s_out", F32, "batch", 3)],
        constants={"last": np.array([2])},
    )


X = [io("x", "FP32", 3)]
MODELS = {
    "sum": Folder(config(X, [io("y", "FP32", 3)]), running_sum("batch", 3)),
    "strings": Folder(
        config([io("t", "STRING", 2), io("x", "FP32", 1)], [io("u", "STRING", 2)], state_pairs="<<<s, s_out>>>"), strings()
    ),
}
MODELS["gru"] = Folder(config([io("rows", "FP32", -1, 3)], [io("y", "FP32", 2)]), recurrent())
MODELS["einsum"] = Folder(config([io("rows", "FP32", -1, 3)], [io("y", "FP32", 3)]), linear_attention())
HUGE = 2**62
ONES = np.ones(3, F32).tobytes()


@pytest.fixture
def good(own_server):
    """A sequence that goes on while others misbehave."""
    with InferenceServerClient(own_server.grpc_url) as client:

        def step(**flags) -> float:
            return float(infer(client, "sum", 1, {"x": np.ones((1, 3), F32)}, **flags)["y"].flat[0])

        assert step(start=True) == 1
        yield step
        assert step() == 2, "the sequence has lost its state"


def request(name: str, datatype: str, shape: list[int], raw: bytes | None, *more) -> service_pb2.ModelInferRequest:
    """A START of sequence 9 with one input, or several: name, type, shape, bytes."""
    r = service_pb2.ModelInferRequest(model_name="strings" if name == "t" else "sum")
    r.parameters["sequence_id"].int64_param = 9
    r.parameters["sequence_start"].bool_param = True
    for name, datatype, shape, raw in [(name, datatype, shape, raw), *more]:
        r.inputs.add(name=name, datatype=datatype, shape=shape)
        if raw is not None:
            r.raw_input_contents.append(raw)
    return r


def lengths(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


SCALAR = ("x", "FP32", [1, 1], bytes(4))
REQUESTS = {
    "too_few_bytes": request("x", "FP32", [1, 3], ONES[:-1]),
    "too_many_bytes": request("x", "FP32", [1, 3], ONES + b"x"),
    "no_bytes": request("x", "FP32", [1, 3], b""),
    "no_content": request("x", "FP32", [1, 3], None),
    "content_twice": request("x", "FP32", [1, 3], ONES, ("x", "FP32", [1, 3], ONES)),
    "other_type": request("x", "INT32", [1, 3], ONES),
    "larger_type": request("x", "FP64", [1, 3], ONES * 2),
    "unknown_type": request("x", "FP31", [1, 3], ONES),
    "other_shape": request("x", "FP32", [3, 1], ONES),
    "other_rank": request("x", "FP32", [3], ONES),
    "two_rows": request("x", "FP32", [2, 3], ONES * 2),
    "nothing": request("x", "FP32", [0, 3], b""),
    "negative": request("x", "FP32", [1, -3], ONES),
    "negative_twice": request("x", "FP32", [-1, -3], ONES),
    "huge": request("x", "FP32", [1, HUGE], ONES),
    "overflows": request("x", "FP32", [HUGE, 4], b""),
    "many_axes": request("x", "FP32", [1] * 500 + [3], ONES),
    "other_name": request("unknown", "FP32", [1, 3], ONES),
    "one_more_input": request("x", "FP32", [1, 3], ONES, ("y", "FP32", [1, 3], ONES)),
    "the_state": request("x", "FP32", [1, 3], ONES, ("s", "FP32", [1, 3], ONES)),
    "no_input": service_pb2.ModelInferRequest(model_name="sum"),
    "text_beyond_its_end": request("t", "BYTES", [1, 2], lengths(100, 0), SCALAR),
    "text_of_4_gib": request("t", "BYTES", [1, 2], lengths(0, 2**32 - 1), SCALAR),
    "text_cut_off": request("t", "BYTES", [1, 2], lengths(0) + b"\0\0", SCALAR),
    "one_text_too_few": request("t", "BYTES", [1, 2], lengths(0), SCALAR),
    "one_text_too_many": request("t", "BYTES", [1, 2], lengths(0, 0, 0), SCALAR),
    "huge_texts": request("t", "BYTES", [1, HUGE], lengths(0, 0), SCALAR),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_grpc(own_server, good, name: str):
    with grpc.insecure_channel(own_server.grpc_url) as channel:
        with pytest.raises(grpc.RpcError) as refusal:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(REQUESTS[name], timeout=20)
    assert refusal.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL), refusal.value
    assert refusal.value.details()
    assert own_server.is_ready()


def post(server, body: bytes, header_length: int | None = None, model: str = "sum") -> int:
    """The HTTP status of a request; with a length, the body is a JSON header so long, and bytes."""
    r = urllib.request.Request(f"http://{server.http_url}/v2/models/{model}/infer", body)
    if header_length is not None:
        r.add_header("Inference-Header-Content-Length", str(header_length))
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(r, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as failure:
        assert json.loads(failure.read())["error"]
        return failure.code


def header(shape: list[int], datatype: str = "FP32", binary: int | None = None, **tensor) -> bytes:
    parameters = {"sequence_id": 9, "sequence_start": True}
    tensor |= {"name": "x", "shape": shape, "datatype": datatype}
    if binary is not None:
        tensor["parameters"] = {"binary_data_size": binary}
    return json.dumps({"parameters": parameters, "inputs": [tensor]}).encode()


# Not here: a shape whose bytes overflow 64 bits, with elements as JSON. tritonserver 2.51 itself crashes on it, in its
# HTTP front end, before any backend sees the request.
JSON = {
    "too_few_elements": header([1, 3], data=[1, 2]),
    "too_many_elements": header([1, 3], data=[1, 2, 3, 4]),
    "text_for_a_number": header([1, 3], data=["1", "2", "3"]),
    "no_data": header([1, 3]),
    "other_type": header([1, 3], "INT64", data=[1, 2, 3]),
    "negative": header([1, -3], data=[1, 2, 3]),
    "overflows": header([HUGE, 4], data=[]),
    "beyond_64_bits": header([1, 2**64 + 3], data=[1, 2, 3]),
    "not_json": b"{" * 1000,
    "empty": b"",
}
BINARY = {
    "too_few_bytes": (header([1, 3], binary=8), bytes(8)),
    "too_many_bytes": (header([1, 3], binary=16), bytes(16)),
    "bytes_that_are_not_there": (header([1, 3], binary=12), bytes(4)),
    "size_beyond_the_body": (header([1, 3], binary=2**40), ONES),
    "negative_size": (header([1, 3], binary=-1), ONES),
    "huge": (header([1, HUGE], binary=12), ONES),
}


@pytest.mark.parametrize("name", JSON)
def test_http(own_server, good, name: str):
    assert 400 <= post(own_server, JSON[name]) < 600
    assert own_server.is_ready()


@pytest.mark.parametrize("name", BINARY)
def test_http_binary(own_server, good, name: str):
    head, data = BINARY[name]
    assert 400 <= post(own_server, head + data, len(head)) < 600
    assert own_server.is_ready()


def test_the_good_ones_are_good(own_server):
    """What the bad requests are made of is accepted, so that they are refused for what is bad in them."""
    with grpc.insecure_channel(own_server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for r in (request("x", "FP32", [1, 3], ONES), request("t", "BYTES", [1, 2], lengths(0, 0), SCALAR)):
            stub.ModelInfer(r, timeout=20)
    assert post(own_server, header([1, 3], data=[1, 2, 3])) == 200
    head = header([1, 3], binary=12)
    assert post(own_server, head + ONES, len(head)) == 200


@pytest.mark.parametrize(("name", "width"), [("gru", 2), ("einsum", 3)])
def test_no_rows_where_they_end_the_process(own_client, name, width, good):
    with pytest.raises(InferenceServerException, match=r'input "rows" has shape \[1,0,3\]'):
        infer(own_client, name, 5, {"rows": np.zeros((1, 0, 3), F32)}, start=True)
    assert infer(own_client, name, 5, {"rows": np.zeros((1, 2, 3), F32)}, start=True)["y"].shape == (1, width)
