"""The example models in a real server, with the official client."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

import accumulate
import generate
import smoke
from streaming import Model, Stream
from tritonserver import TritonServer
from unary import infer

NUMBERS, TEXTS = "accumulate_fp32", "mixed_io_bool_int8"  # by what they call their sequences
ONES = {"Input": np.ones((1, 4, 1, 5), np.float32)}
NEEDS_START = "must specify the START flag on the first request"


@pytest.fixture
def client(server: TritonServer) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc_url) as client:
        yield client


@pytest.fixture
def opened(client) -> Iterator[int]:
    """A sequence of NUMBERS after one request; it ends with the test, for an open one delays the server's exit."""
    sequence = 1000
    assert step(client, sequence, start=True) == 5
    yield sequence
    infer(client, NUMBERS, sequence, ONES, end=True)


def step(client, sequence, **flags) -> float:
    """Sends four rows of ones and returns the answer's value, the same in every row and column: the sum and one."""
    output = infer(client, NUMBERS, sequence, ONES, **flags)["Output"]
    assert output.shape == (4, 1, 5)
    assert np.all(output == output[0, 0, 0])
    return output[0, 0, 0]


@pytest.mark.parametrize("name", generate.EXAMPLES)
def test_streams_of_many_sequences(server, name):
    for result in smoke.test_model(server, name, sequences=48, steps=6):
        assert not result.mistakes
        assert result.requests == result.sequences * (result.steps + (name != "accumulate_int32"))


def test_requests_are_batched(server):
    """48 sequences with one request in flight each: on average more than one request runs at a time."""
    _, result = smoke.test_model(server, NUMBERS, sequences=48, steps=6)
    assert result.mean_batch > 1.5


def test_sequence_of_several_streams(server, client):
    """The connection that a request comes by does not matter, only its sequence."""
    model = Model.on(client, NUMBERS)
    (sequence,) = accumulate.random_sequences(model, 1, 6)
    with InferenceServerClient(server.grpc_url) as other, Stream(client) as one, Stream(other) as two:
        for number, request in enumerate(sequence.requests):
            stream = (one, two)[number % 2]
            stream.send(model, sequence.id, request.inputs, start=request.start, end=request.end)
            answer = stream.receive()
            for tensor in model.outputs:
                assert not smoke.difference(tensor, answer, request.expected)


def test_same_id_on_two_models(client, opened):
    integers = {"Input": np.ones((1, 4, 1, 5), np.int32)}
    infer(client, "accumulate_int32", opened, integers, start=True)
    assert step(client, opened) == 9
    last = infer(client, "accumulate_int32", opened, integers, end=True)  # inferred
    assert np.all(last["Output"] == 9)


def test_start_resets_an_open_sequence(client, opened):
    assert step(client, opened) == 9
    assert step(client, opened, start=True) == 5
    assert step(client, opened) == 9


def test_end_that_is_not_inferred_answers_with_ones(client):
    values = {"Input_int8": np.ones((1, 4, 1, 3), np.int8), "Input_bool": np.ones((1, 4, 1, 3), bool)}
    infer(client, TEXTS, "brief", values, start=True)
    answer = infer(client, TEXTS, "brief", values, end=True)
    assert {name: (value.dtype, value.shape) for name, value in answer.items()} == {
        "Output_int8": (np.int8, (1, 1, 1)),
        "Output_bool": (bool, (1, 1, 1)),
    }
    with pytest.raises(InferenceServerException, match=f"sequence brief .*{NEEDS_START}"):
        infer(client, TEXTS, "brief", values)


def test_sequence_of_one_request(client):
    integers = {"Input": np.ones((1, 4, 1, 5), np.int32)}
    answer = infer(client, "accumulate_int32", 3, integers, start=True, end=True)
    assert np.all(answer["Output"] == 5)
    with pytest.raises(InferenceServerException, match=NEEDS_START):
        infer(client, "accumulate_int32", 3, integers)


# The official client sends no number above 2^63 - 1.
@pytest.mark.parametrize("sequence", [1, 2**32, 2**63 - 1])
def test_numbers_as_ids(client, sequence):
    assert step(client, sequence, start=True) == 5
    assert step(client, sequence) == 9
    infer(client, NUMBERS, sequence, ONES, end=True)


@pytest.mark.parametrize("sequence", ["a", "7", "x" * 128, "Käse → 語", 'with "quotes"', " ", "two\nlines"])
def test_texts_as_ids(client, sequence):
    values = {"Input_int8": np.ones((1, 4, 1, 3), np.int8), "Input_bool": np.zeros((1, 4, 1, 3), bool)}
    for start, want in ((True, 5), (False, 9)):
        answer = infer(client, TEXTS, sequence, values, start=start)
        assert np.all(answer["Output_int8"] == want)
        assert not answer["Output_bool"].any()
    infer(client, TEXTS, sequence, values, end=True)


def test_unknown_sequence(client):
    with pytest.raises(InferenceServerException, match=f"sequence 4711 to model '{NUMBERS}' {NEEDS_START}"):
        infer(client, NUMBERS, 4711, ONES)


def ones(*shape: int, dtype=np.float32) -> dict[str, np.ndarray]:
    return {"Input": np.ones(shape, dtype)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(ones(1, 4, 1, 6), r"input 'Input'.* Expected \[-1,4,-1,5\], got \[1,4,1,6\]", id="features"),
        pytest.param(ones(1, 4, 2, 5), r'input "Input" has shape \[1,4,2,5\]: want \[1,4,1,5\]', id="lanes"),
        pytest.param(ones(1, 4, 0, 5), r'input "Input" has shape \[1,4,0,5\]: want \[1,4,1,5\]', id="no lane"),
        pytest.param(ONES | {"Mystery": ONES["Input"]}, "expected 1 inputs but got 2", id="unknown input"),
    ],
)
def test_bad_request_changes_nothing(client, opened, values, message):
    with pytest.raises(InferenceServerException, match=message):
        infer(client, NUMBERS, opened, values)
    assert step(client, opened) == 9


def test_failed_start(client, opened):
    """There is no telling what state a sequence has whose START failed, so it must be started again."""
    with pytest.raises(InferenceServerException, match='input "Input" has shape'):
        infer(client, NUMBERS, opened, ones(1, 4, 2, 5), start=True)
    with pytest.raises(InferenceServerException, match=f"sequence {opened}: its START failed .* begin it again"):
        infer(client, NUMBERS, opened, ONES)
    assert step(client, opened, start=True) == 5


def test_bad_requests_fail_alone(server, client):
    """Sequences go on next to one whose every request is refused by the backend, so after it was batched with theirs."""
    spoiler, done = 4712, threading.Event()

    def spoil() -> int:
        refused = 0
        with InferenceServerClient(server.grpc_url) as own:
            while not done.is_set():
                with pytest.raises(InferenceServerException, match='input "Input" has shape'):
                    infer(own, NUMBERS, spoiler, ones(1, 4, 2, 5))
                refused += 1
        return refused

    infer(client, NUMBERS, spoiler, ONES, start=True)
    with ThreadPoolExecutor(max_workers=1) as pool:
        refused = pool.submit(spoil)
        try:
            results = smoke.test_model(server, NUMBERS, sequences=24, steps=12)
        finally:
            done.set()
        assert refused.result() > 1
    for result in results:
        assert not result.mistakes
    assert step(client, spoiler) == 9
    infer(client, NUMBERS, spoiler, ONES, end=True)
