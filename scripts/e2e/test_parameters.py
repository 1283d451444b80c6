"""Parameters of requests reach the backend and those of answers the client, whatever the protocol; requests wait.

Uses the library of build/faults, of which an instance can do what its requests say (capi/faults_requests.go): so this
is about the way through the server, and not about what a state store makes of it.
"""

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from configs import config, direct, io, oldest
from conftest import Folder
from graphs import running_sum
from test_faults import FAULTS
from tritonserver import TritonServer

Parameters = dict[str, str | int | bool]
X, Y = io("x", "FP32", 3), io("y", "FP32", 3)


def folder(scheduler: str) -> Folder:
    text = config([X], [Y], scheduler, fault_inject="as-requested")
    return Folder(text, running_sum("batch", 3))


MODELS = {"oldest": folder(oldest(0, candidates=64)), "direct": folder(direct(delay=0, utilization=0))}
FORWARDED = ["--http-header-forward-pattern=(?i)stateful.*", "--grpc-header-forward-pattern=stateful.*"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("repository")
    for name, content in MODELS.items():
        content.write(repository / name)
    with TritonServer(repository, FAULTS, options=FORWARDED) as server:
        yield server


# Sends a request of a sequence: the sum so far, which is in every element, and the parameters of the answer.
Send = Callable[..., tuple[float, Parameters]]


def total(result) -> float:
    values = set(result.as_numpy("y").flat)
    assert len(values) == 1
    return values.pop()


@contextmanager
def over_http(server: TritonServer) -> Iterator[Send]:
    given = tritonclient.http.InferInput("x", [1, 3], "FP32").set_data_from_numpy(np.ones((1, 3), np.float32))
    with tritonclient.http.InferenceServerClient(server.http_url, concurrency=16) as client:

        def send(model: str, sequence: int, parameters: Parameters, headers: dict[str, str] | None = None, **flags):
            result = client.infer(model, [given], sequence_id=sequence, parameters=parameters, headers=headers, **flags)
            return total(result), result.get_response().get("parameters", {})

        yield send


def of_protobuf(parameters) -> Parameters:
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in parameters.items()}


def grpc_input() -> tritonclient.grpc.InferInput:
    return tritonclient.grpc.InferInput("x", [1, 3], "FP32").set_data_from_numpy(np.ones((1, 3), np.float32))


@contextmanager
def over_grpc(server: TritonServer) -> Iterator[Send]:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:

        def send(model: str, sequence: int, parameters: Parameters, headers: dict[str, str] | None = None, **flags):
            result = client.infer(model, [grpc_input()], sequence_id=sequence, parameters=parameters, headers=headers, **flags)
            return total(result), of_protobuf(result.get_response().parameters)

        yield send


@contextmanager
def over_stream(server: TritonServer) -> Iterator[Send]:
    answers: queue.Queue = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))

        def send(model: str, sequence: int, parameters: Parameters, **flags):
            client.async_stream_infer(model, [grpc_input()], sequence_id=sequence, parameters=parameters, **flags)
            result, error = answers.get(timeout=10)
            if error is not None:
                raise error
            return total(result), of_protobuf(result.get_response().parameters)

        yield send
        client.stop_stream()


PROTOCOLS = {"http": over_http, "grpc": over_grpc, "stream": over_stream}


@pytest.fixture(params=list(PROTOCOLS))
def send(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Send]:
    with PROTOCOLS[request.param](server) as send:
        yield send


@pytest.fixture
def sequence(request: pytest.FixtureRequest) -> int:
    """An ID that no other test has."""
    return abs(hash(request.node.nodeid)) % 2**60 + 1


def ours(parameters: Parameters) -> Parameters:
    """Triton adds parameters of its own."""
    return {name: value for name, value in parameters.items() if name.startswith("stateful_")}


def described(step: int, saved: int, resumed: bool = False) -> Parameters:
    return {"stateful_step": step, "stateful_saved_step": saved, "stateful_resumed": resumed}


@pytest.mark.parametrize("model", MODELS)
def test_parameters_come_and_go(send, sequence, model):
    """Of every type. A request without any gets none, and other parameters do not matter."""
    answer, parameters = send(model, sequence, {"other": "text", "stateful_step": 5}, sequence_start=True)
    assert (answer, ours(parameters)) == (1, described(6, 5))
    answer, parameters = send(model, sequence, {"stateful_step": "7", "stateful_drop": True})
    assert (answer, ours(parameters)) == (2, described(8, 7))
    answer, parameters = send(model, sequence, {"other": True, "statefulness": 1})
    assert (answer, ours(parameters)) == (3, {})
    answer, parameters = send(model, sequence, {"stateful_step": 2**53, "stateful_save": True, "stateful_key": "k"})
    assert (answer, ours(parameters)) == (4, described(2**53 + 1, 2**53 + 1))
    assert send(model, sequence, {}, sequence_end=True)[0] == 5


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"stateful_step": -1}, r'parameter "stateful_step" is the integer -1: want an integer of at least 0'),
        ({"stateful_save": "yes"}, r'parameter "stateful_save" is the string "yes": want a bool'),
        ({"stateful_resume": "maybe"}, r'parameter "stateful_resume" is the string "maybe": want "try", "require" or a bool'),
        ({"stateful_key": "k" * 257}, r"\(257 bytes\): want a string of 1 to 256 bytes"),
        ({"stateful_key": 7}, r"is the integer 7: want a string"),
        ({"stateful_steps": 7}, r'parameter "stateful_steps" is unknown: want one of stateful_resume, stateful_step'),
    ],
    ids=["negative", "bool", "choice", "length", "type", "unknown"],
)
def test_wrong_parameters(send, sequence, wrong, text):
    """They fail their request alone."""
    assert send("oldest", sequence, {}, sequence_start=True)[0] == 1
    with pytest.raises(InferenceServerException, match=text):
        send("oldest", sequence, wrong)
    assert send("oldest", sequence, {})[0] == 2


def test_floating_point_parameter(server, sequence):
    """A number with a fraction is none of ours."""
    with over_http(server) as send, pytest.raises(InferenceServerException, match="is a floating-point number: want an integer"):
        send("oldest", sequence, {"stateful_step": 3.5}, sequence_start=True)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_forwarded_headers(server, sequence, protocol):
    """A proxy can set parameters: Triton makes forwarded headers parameters, with their names as they came."""
    headers = {"stateful-step": "3", "stateful-save": "true"}
    if protocol == "http":
        headers = {name.title(): value for name, value in headers.items()}
    with PROTOCOLS[protocol](server) as send:
        answer, parameters = send("oldest", sequence, {}, headers=headers, sequence_start=True)
    assert (answer, ours(parameters)) == (1, described(4, 4))


@pytest.mark.parametrize("model", MODELS)
def test_error_in_place_of_outputs(send, sequence, model):
    """An answer that is ready can become an error; its sequence has gone on."""
    assert send(model, sequence, {}, sequence_start=True)[0] == 1
    with pytest.raises(InferenceServerException, match="not saved"):
        send(model, sequence, {"stateful_key": "fail"})
    assert send(model, sequence, {})[0] == 3


@pytest.mark.parametrize("model", MODELS)
def test_parked(send, sequence, model):
    """A START that waits comes back and runs as any other, and its sequence goes on after it."""
    answer, parameters = send(model, sequence, {"stateful_resume": True, "stateful_step": 3}, sequence_start=True)
    assert (answer, ours(parameters)) == (1, described(4, 3, resumed=True))
    assert send(model, sequence, {})[0] == 2
    assert send(model, sequence, {}, sequence_end=True)[0] == 3


def test_others_run_while_one_is_parked(server):
    """And those that are parked together come back together."""
    with over_grpc(server) as send, ThreadPoolExecutor(40) as pool:
        send("oldest", 900, {}, sequence_start=True)
        waits = {"stateful_resume": "require", "stateful_key": "wait 1s"}
        begin = time.monotonic()
        parked = [pool.submit(send, "oldest", 901 + i, waits, sequence_start=True) for i in range(32)]
        for step in range(20):
            assert send("oldest", 900, {})[0] == 2 + step
        assert time.monotonic() - begin < 0.9
        assert [answer.result()[0] for answer in parked] == [1] * 32
        assert 0.9 < time.monotonic() - begin < 3


@pytest.mark.parametrize("waits", [{"stateful_resume": "try"}, {"stateful_save": True}], ids=["parked", "held"])
def test_unload_waits_for_requests(serve, waits):
    """A model is unloaded when none of its requests is left, also if they are parked or held."""
    server = serve({"oldest": MODELS["oldest"]}, backends=FAULTS, explicit=True)
    server.load("oldest")
    with over_grpc(server) as send, ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(send, "oldest", 7, {**waits, "stateful_key": "wait 1s"}, sequence_start=True)
        time.sleep(0.3)
        server.unload("oldest")
        assert waiting.result()[0] == 1
    assert server.stop() == 0
