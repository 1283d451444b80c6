"""Clients that use an ID again without waiting for the answer to its END: for a time two sequences have the same ID."""

import queue

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient

from configs import config, direct, io, oldest
from conftest import Folder
from graphs import running_sum
from unary import tensor

F32 = np.float32
LISTED = 'state [{ input_name: "s" output_name: "s_out" data_type: TYPE_FP32 dims: [3] }]'
TOKEN = 'state [{ input_name: "stateful_token" output_name: "stateful_token" data_type: TYPE_UINT8 dims: [1] }]'


def folder(scheduler: str, *, batch: int = 8, **parameters: str) -> Folder:
    return Folder(
        config([io("x", "FP32", 3)], [io("y", "FP32", 3)], scheduler, batch=batch, **parameters),
        running_sum("batch", 3),
    )


MANY = {"candidates": 64}  # all sequences of a round at once
PAIRS = {"state_pairs": "<<<s, s_out>>>"}
MODELS = {
    "listed": folder(oldest(0, LISTED, **MANY)),
    "listed_waits": folder(oldest(4, LISTED, delay=2_000, **MANY)),
    "listed_alone": folder(oldest(0, LISTED, **MANY), batch=1),
    "token": folder(oldest(0, TOKEN, **MANY), **PAIRS),
    "unlisted": folder(oldest(0, **MANY), **PAIRS),
    "unlisted_waits": folder(oldest(4, delay=2_000, **MANY), **PAIRS),
    "unlisted_alone": folder(oldest(0, **MANY), batch=1, **PAIRS),
    "direct": folder(direct(delay=0, utilization=0), batch=16, **PAIRS),
    "direct_waits": folder(direct(delay=1_000, utilization=1), batch=16, **PAIRS),
    "direct_listed": folder(direct(LISTED, delay=0, utilization=0), batch=16),
    "completed": Folder('backend: "stateful"\ninstance_group [{ kind: KIND_CPU }]\n', running_sum("batch", 3)),
}


def pipelined(url: str, model: str, ids: range, sequences: int, steps: int) -> tuple[list[str], list[str]]:
    """Sends whole sequences of each ID one after the other and does not wait. Returns what was wrong, and the errors.

    Sequence n of an ID sends n + 1 in each request, so that an answer shows whose state it was.
    """
    answers: queue.Queue = queue.Queue()
    wrong, errors = [], []
    with InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for each in ids:
            for n in range(sequences):
                for at in range(steps):
                    client.async_stream_infer(
                        model, [tensor("x", np.full((1, 3), n + 1, F32))], request_id=f"{each}-{n}-{at}",
                        sequence_id=each, sequence_start=at == 0, sequence_end=at == steps - 1,
                    )  # fmt: skip
        for _ in range(sequences * steps * len(ids)):
            result, error = answers.get(timeout=60)
            if error is not None:
                errors.append(str(error))
                continue
            name = result.get_response().id
            _, n, at = map(int, name.split("-"))
            found = result.as_numpy("y").tolist()
            if found != [3 * [(n + 1) * (at + 1)]]:
                wrong.append(f"{name}: {found}, not {(n + 1) * (at + 1)}")
        client.stop_stream()
    return wrong, errors


@pytest.mark.parametrize("name", MODELS)
def test_sequences_of_one_id_without_waiting(own_server, name):
    """540 requests in three rounds, each of 15 IDs that have three sequences of 4 steps at once."""
    for round in range(3):
        ids = range(1000 * (round + 1), 1000 * (round + 1) + 15)
        wrong, errors = pipelined(own_server.grpc_url, name, ids, sequences=3, steps=4)
        assert not wrong
        assert not errors
