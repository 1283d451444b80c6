"""What a request can ask for, how its data can arrive, and what becomes of one whose client is gone."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import ModelProto
from tritonclient.utils import InferenceServerException, shared_memory

from configs import config, direct, io, oldest
from conftest import Folder
from graphs import model, op, running_sum, tensor
from prometheus import scrape
from tritonserver import TritonServer
from unary import infer
from unary import tensor as grpc_input

F32 = np.float32
WIDE = 50_000  # elements: more than one network buffer
SLOW, PRODUCTS = 1024, 8  # a quarter of a second on one core


def two_outputs() -> ModelProto:
    """A sum and its double."""
    return model(
        op("Add", "s x -> s_out"),
        op("Identity", "s_out -> y"),
        op("Add", "s_out s_out -> twice"),
        inputs=[tensor("x", F32, "batch", 3), tensor("s", F32, "batch", 3)],
        outputs=[tensor(name, F32, "batch", 3) for name in ("y", "twice", "s_out")],
    )


def slow() -> ModelProto:
    """Counts the requests that have run, slowly: x, which has to be 1, goes through large products of matrices."""
    chain = [op("MatMul", f"m{i} ones -> p{i}") for i in range(PRODUCTS)]
    scale = [op("Mul", f"p{i} part -> m{i + 1}") for i in range(PRODUCTS)]
    ends = [op("ReduceMean", f"m{PRODUCTS} -> back", axes=[0, 1], keepdims=0), op("Reshape", "back lane -> one")]
    return running_sum(
        "batch",
        1,
        nodes=[
            op("Reshape", "x one_by_one -> cell"),
            op("Mul", "cell ones -> m0"),
            *(node for pair in zip(chain, scale, strict=True) for node in pair),
            *ends,
        ],
        term="one",
        constants={
            "ones": np.ones((SLOW, SLOW), F32),
            "part": F32(1 / SLOW),
            "one_by_one": np.array([1, 1]),
            "lane": np.array([1, 1]),
        },
    )


def with_default() -> ModelProto:
    """y = s' = s + gain * x, where the gain is 2 if no one gives it."""
    scale, gain = [op("Mul", "x gain -> scaled")], np.array([2], F32)
    return running_sum("batch", 3, nodes=scale, term="scaled", inputs=[tensor("gain", F32, 1)], constants={"gain": gain})


def stateless_with_default() -> ModelProto:
    return model(
        op("Mul", "x gain -> y"),
        inputs=[tensor("x", F32, "batch", 3), tensor("gain", F32, 1)],
        outputs=[tensor("y", F32, "batch", 3)],
        constants={"gain": np.array([2], F32)},
    )


X, Y = io("x", "FP32", 3), io("y", "FP32", 3)
ONE = [io("x", "FP32", 1)], [io("y", "FP32", 1)]
GAIN = io("gain", "FP32", 1, more="optional: true")

MODELS = {
    "sums": Folder(config([X], [Y, io("twice", "FP32", 3)]), two_outputs()),
    "unlisted": Folder(config([X], [Y]), two_outputs()),
    "wide": Folder(config([io("x", "FP32", WIDE)], [io("y", "FP32", WIDE)]), running_sum("batch", WIDE)),
    "slow": Folder(config(*ONE, oldest(0), batch=1), slow()),
    "slow_direct": Folder(config(*ONE, direct(delay=0, utilization=0), batch=1), slow()),
    "slow_stateless": Folder(config(*ONE, "", batch=1, constant_inputs="s = 0"), slow()),
    "default": Folder(config([X, GAIN], [Y]), with_default()),
    "stateless_default": Folder(config([X, GAIN], [Y], "dynamic_batching {}", batch=8), stateless_with_default()),
}


@pytest.fixture(scope="module")
def http(own_server) -> Iterator[tritonclient.http.InferenceServerClient]:
    with tritonclient.http.InferenceServerClient(own_server.http_url) as client:
        yield client


@pytest.fixture
def sequence() -> int:
    """An ID that no other test has."""
    return uuid.uuid4().int % 2**60


def ones(value: float = 1) -> dict[str, np.ndarray]:
    return {"x": np.full((1, 3), value, F32)}


@pytest.mark.parametrize("wanted", [["y"], ["twice"], ["twice", "y"], None])
def test_only_what_is_asked_for(own_client, sequence, wanted):
    """What is not asked for is not sent, and the state is kept all the same."""
    for step, flags in enumerate(({"start": True}, {}, {"end": True}), start=1):
        answer = infer(own_client, "sums", sequence, ones(), outputs=wanted, **flags)
        assert set(answer) == set(wanted or ["y", "twice"])
        for name, value in answer.items():
            np.testing.assert_array_equal(value, np.full((1, 3), step * (1 if name == "y" else 2), F32))


def test_output_that_is_not_there(own_client, sequence):
    with pytest.raises(InferenceServerException, match="unexpected inference output 's_out' for model 'sums'"):
        infer(own_client, "sums", sequence, ones(), outputs=["s_out"], start=True, end=True)


@pytest.mark.parametrize("binary", [True, False])
def test_http(http, sequence, binary):
    """Binary data of that size arrives in several buffers; without it the numbers stand in the JSON text."""
    width = WIDE if binary else 3
    name = "wide" if binary else "sums"
    random = np.random.default_rng(0)
    total = np.zeros((1, width), F32)
    for step in range(3):
        x = random.integers(-9, 10, (1, width)).astype(F32)
        total = total + x
        given = tritonclient.http.InferInput("x", x.shape, "FP32").set_data_from_numpy(x, binary_data=binary)
        wanted = [tritonclient.http.InferRequestedOutput("y", binary_data=binary)]
        flags = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 2}
        answer = http.infer(name, [given], outputs=wanted, **flags)
        np.testing.assert_array_equal(answer.as_numpy("y"), total)


def test_http_sequences_by_text_and_parameters(http, own_client, sequence):
    """Unknown parameters are ignored."""
    given = tritonclient.http.InferInput("x", [1, 3], "FP32").set_data_from_numpy(ones()["x"])
    answer = http.infer(
        "sums",
        [given],
        sequence_id=sequence,
        sequence_start=True,
        sequence_end=True,
        parameters={"temperature": 0.5, "note": "unused", "fast": True},
    )
    np.testing.assert_array_equal(answer.as_numpy("y"), ones()["x"])
    answer = own_client.infer(
        "sums",
        [grpc_input("x", ones()["x"])],
        sequence_id=sequence,
        sequence_start=True,
        sequence_end=True,
        parameters={"beams": 4},
    )
    np.testing.assert_array_equal(answer.as_numpy("y"), ones()["x"])


class Region:
    """A region of system shared memory that the server knows."""

    def __init__(self, client, size: int):
        self.client, self.size = client, size
        self.name = f"stateful-{uuid.uuid4().hex}"
        self.handle = shared_memory.create_shared_memory_region(self.name, f"/{self.name}", size)
        client.register_system_shared_memory(self.name, f"/{self.name}", size)

    def close(self) -> None:
        self.client.unregister_system_shared_memory(self.name)
        shared_memory.destroy_shared_memory_region(self.handle)


@pytest.fixture
def region(own_client) -> Iterator[Region]:
    region = Region(own_client, 8 * WIDE)
    yield region
    region.close()


def test_shared_memory(own_client, region, sequence):
    """The input is read from the first half of a region, and the output is written to the other."""
    half = region.size // 2
    total = np.zeros((1, WIDE), F32)
    for step in range(3):
        x = np.full((1, WIDE), step + 1, F32)
        total = total + x
        shared_memory.set_shared_memory_region(region.handle, [x])
        given = tritonclient.grpc.InferInput("x", [1, WIDE], "FP32")
        given.set_shared_memory(region.name, half)
        wanted = tritonclient.grpc.InferRequestedOutput("y")
        wanted.set_shared_memory(region.name, half, offset=half)
        flags = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 2}
        answer = own_client.infer("wide", [given], outputs=[wanted], **flags)
        assert not any(answer.get_response().raw_output_contents)
        written = shared_memory.get_contents_as_numpy(region.handle, F32, [1, WIDE], offset=half)
        np.testing.assert_array_equal(written, total)


def executions(client, name: str, least: int = 0) -> int:
    """How many batches have run. The server counts one a little after it was answered, so this waits for the least."""
    return until(lambda: client.get_inference_statistics(name).model_stats[0].execution_count, least)


def until(number: Callable[[], float], least: float) -> float:
    """The first number that is large enough, or the last one before patience ends."""
    deadline = time.monotonic() + 10
    while (found := number()) < least and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def waiting(server: TritonServer, name: str) -> float:
    """How many requests the server has and has not begun to run."""
    (count,) = scrape(server.metrics_url, "nv_inference_pending_request_count").of(name).values()
    return count


QUEUE = 6
MOST_BEGUN = 4  # all of them, if nothing were cancelled; on a busy machine more than one begins before that arrives


@pytest.mark.parametrize("name", ["slow", "slow_direct", "slow_stateless"])
def test_cancelled_while_queued(own_server, own_client, name):
    """Requests that their clients cancel while they wait after another one never run, and the server goes on."""
    flags = {} if name == "slow_stateless" else {"sequence_start": True, "sequence_end": True}
    one, outcomes = np.ones((1, 1), F32), []
    before = executions(own_client, name)
    calls = [
        own_client.async_infer(
            name,
            [grpc_input("x", one)],
            lambda result, error: outcomes.append(error or result),
            sequence_id=60 + at if flags else 0,
            **flags,
        )
        for at in range(QUEUE)
    ]
    queued = until(lambda: waiting(own_server, name), QUEUE - 1)
    for call in calls:
        call.cancel()
    assert until(lambda: len(outcomes), QUEUE) == QUEUE
    ran = sum(not isinstance(outcome, Exception) for outcome in outcomes)
    last = infer(own_client, name, 70 if flags else 0, {"x": one}, start=bool(flags), end=bool(flags))
    assert last["y"] == 1
    begun = executions(own_client, name, before + ran + 1) - before - 1
    assert queued > 2
    assert begun <= MOST_BEGUN, f"{begun} of {QUEUE} ran, though {queued:g} were waiting when cancelled"


def test_cancelled_stream(own_server, own_client):
    """A stream that is cancelled takes its queued requests along."""
    before = executions(own_client, "slow")
    with tritonclient.grpc.InferenceServerClient(own_server.grpc_url) as client:
        client.start_stream(lambda result, error: None)
        given = [grpc_input("x", np.ones((1, 1), F32))]
        for at in range(QUEUE):
            client.async_stream_infer("slow", given, sequence_id=80 + at, sequence_start=True, sequence_end=True)
        queued = until(lambda: waiting(own_server, "slow"), QUEUE - 1)
        client.stop_stream(cancel_requests=True)
    assert infer(own_client, "slow", 90, {"x": np.ones((1, 1), F32)}, start=True, end=True)["y"] == 1
    begun = executions(own_client, "slow", before + 2) - before - 1
    assert queued > 2
    assert begun <= MOST_BEGUN


def test_output_that_the_configuration_does_not_list(own_client, sequence):
    """It is not computed, whatever the sizes of the batches."""
    with ThreadPoolExecutor(8) as pool:
        for step in range(6):
            together = range(1 + 3 * step % 8)
            answers = [
                pool.submit(infer, own_client, "unlisted", sequence + at, ones(at), start=True, end=True) for at in together
            ]
            for at, answer in zip(together, answers, strict=True):
                np.testing.assert_array_equal(answer.result()["y"], ones(at)["x"])


def test_optional_input(own_client, sequence):
    """The model's default stands in for an input that a request leaves out, in every such request."""
    gain = {"gain": np.array([[10]], F32)}
    steps = [(ones(), 2), (ones() | gain, 12), (ones(), 14)]
    for step, (request, want) in enumerate(steps):
        answer = infer(own_client, "default", sequence, request, start=step == 0, end=step == 2)
        np.testing.assert_array_equal(answer["y"], np.full((1, 3), want, F32))


def test_input_without_a_batch_axis_in_a_request_of_several_rows(own_client):
    """The rows of the input must be equal: the model takes it once."""
    x = np.arange(6, dtype=F32).reshape(2, 3)
    answer = infer(own_client, "stateless_default", 0, {"x": x, "gain": np.full((2, 1), 10, F32)})
    np.testing.assert_array_equal(answer["y"], 10 * x)
    with pytest.raises(InferenceServerException, match='input "gain" differs within the batch'):
        infer(own_client, "stateless_default", 0, {"x": x, "gain": np.array([[10], [11]], F32)})
