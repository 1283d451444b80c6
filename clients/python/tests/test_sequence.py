"""A sequence gives the same answers whatever happens to its servers, or an error that says what was lost."""

import asyncio
import threading
import time

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferResult
from tritonclient.utils import InferenceServerException

from fakeserver import FakeServer, Refused, Store
from tritonstateful_client import (
    AnswerLost,
    AsyncSequence,
    Retry,
    Sequence,
    SequenceEnded,
    ServersLost,
    StateLost,
    Unsupported,
    aio,
    connect,
)

FAST = Retry(attempts=40, delay=0.01, longest=0.1)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def servers(store):
    made = [FakeServer(store), FakeServer(store)]
    yield made
    for server in made:
        server.die()


def begin(servers: list[FakeServer], **options) -> Sequence:
    options = {"retry": FAST, "attempt_timeout": 5.0} | options
    return Sequence(connect(*(server.address for server in servers)), "sum", **options)


def x(value: int) -> dict[str, np.ndarray]:
    return {"x": np.array([[value]])}


def y(result: InferResult) -> int:
    return int(result.as_numpy("y")[0, 0])


def play(sequence: Sequence, values: range) -> None:
    """Sends the values; each answer must be the sum of all."""
    for value in values:
        assert y(sequence.infer(x(value))) == sum(range(value + 1))


def current(sequence: Sequence, servers: list[FakeServer]) -> FakeServer:
    return servers[sequence._replay.server]


def sent(server: FakeServer) -> list[tuple[int, bool, str]]:
    """Step, START and resume of the requests that a server got."""
    keys = "stateful_step", "sequence_start", "stateful_resume"
    parameters = [[request.parameters[key] for key in keys] for request in server.requests]
    return [(step.int64_param, start.bool_param, resume.string_param) for step, start, resume in parameters]


@pytest.mark.parametrize("stream", [False, True])
def test_without_faults(servers, stream):
    with begin(servers[:1], stream=stream) as sequence:
        play(sequence, range(5))
        assert (sequence.steps, sequence.saved_step, sequence.recoveries) == (5, 3, 0)
        assert y(sequence.end(x(5))) == 15
        with pytest.raises(SequenceEnded):
            sequence.infer(x(6))
    assert sent(servers[0]) == [(step, step == 0, "") for step in range(6)]
    assert {headers["stateful-sequence"] for headers in servers[0].headers} == {sequence.key}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at", range(8))
def test_a_server_dies_at_any_step(servers, stream, at):
    """The other one continues from the saved state, with what was sent since."""
    with begin(servers, stream=stream) as sequence:
        play(sequence, range(at))
        current(sequence, servers).die()
        play(sequence, range(at, 10))
        assert sequence.recoveries == 1


@pytest.mark.parametrize("stream", [False, True])
def test_the_only_server_is_back_later(servers, stream):
    with begin(servers[:1], stream=stream) as sequence:
        play(sequence, range(5))
        servers[0].die()
        threading.Timer(0.5, servers[0].start).start()
        play(sequence, range(5, 10))


def test_what_is_sent_again(servers):
    """First the step that has no answer; the server's answer tells where the replay begins."""
    with begin(servers) as sequence:
        play(sequence, range(5))
        dead, other = current(sequence, servers), servers[1 - sequence._replay.server]
        dead.die()
        play(sequence, range(5, 6))
    assert sent(other) == [(5, True, "try"), (3, True, "try"), (4, False, ""), (5, False, "")]


def test_a_connection_is_lost_and_the_server_is_not(servers, store):
    """The server has gone on by one step, which it does once more."""
    with begin(servers[:1]) as sequence:
        play(sequence, range(7))

        def away(number: int) -> None:
            servers[0].after = lambda number: None
            raise Refused(grpc.StatusCode.UNAVAILABLE, "the connection was reset")

        for step in range(7, 10):  # of which 8 is saved
            servers[0].after = away
            play(sequence, range(step, step + 1))
        assert sequence.recoveries == 3


def test_requests_are_kept_as_long_as_the_state_before_can_be_needed(servers):
    with begin(servers[:1]) as sequence:
        kept = []
        for value in range(10):
            play(sequence, range(value, value + 1))
            kept.append(sequence._replay.kept_step)
    assert kept == [0, 0, 0, 0, 0, 3, 3, 3, 6, 6]


def test_a_server_dies_while_it_runs_a_step(servers):
    with begin(servers) as sequence:
        play(sequence, range(4))
        first = current(sequence, servers)
        first.after = lambda number: first.die_soon()
        play(sequence, range(4, 8))


def test_servers_die_again_and_again(servers, store):
    """Each dies at random steps, also while a sequence is sent again, and is started again."""
    rng = np.random.default_rng(1)
    with begin(servers) as sequence:
        for value in range(60):
            if rng.random() < 0.3:
                server = servers[rng.integers(2)]
                server.die()
                server.start()
            assert y(sequence.infer(x(value))) == sum(range(value + 1))
        assert sequence.recoveries > 3


def test_a_server_that_forgot_the_sequence(servers):
    with begin(servers[:1]) as sequence:
        play(sequence, range(5))
        servers[0].live.clear()
        play(sequence, range(5, 8))


def test_a_server_with_an_older_state_of_the_sequence(servers):
    """It was thought dead, and its state stood still while the other went on."""
    with begin(servers) as sequence:
        play(sequence, range(4))
        old = current(sequence, servers)

        def away(number: int) -> None:
            raise Refused(grpc.StatusCode.UNAVAILABLE, "away for a while")

        old.before = away
        play(sequence, range(4, 8))
        old.before = lambda number: None
        sequence._replay.server = servers.index(old)
        play(sequence, range(8, 10))
    assert sent(old)[-6:-1] == [(8, False, ""), (8, True, "try"), (6, True, "try"), (7, False, ""), (8, False, "")]


def test_a_hung_server(servers):
    with begin(servers, attempt_timeout=0.3) as sequence:
        play(sequence, range(4))
        current(sequence, servers).before = lambda number: time.sleep(1)
        play(sequence, range(4, 8))


def test_an_answer_that_was_lost(servers, store):
    """All requests are kept, so the sequence begins anew and the answer is made again."""
    store.every = 0
    with begin(servers) as sequence:
        play(sequence, range(3))
        lose(current(sequence, servers), store)
        play(sequence, range(3, 6))


def test_an_answer_that_was_lost_after_requests_were_dropped(servers, store):
    """It is made again from the state before."""
    with begin(servers) as sequence:
        play(sequence, range(7))
        lose(current(sequence, servers), store)
        play(sequence, range(7, 12))


def test_an_answer_that_was_lost_with_the_state_before(servers, store):
    with begin(servers, keep_bytes=16) as sequence:
        play(sequence, range(4))
        first = current(sequence, servers)
        lose(first, store)
        saved = first.after

        def die(number: int) -> None:
            store.saved.clear()
            saved(number)

        first.after = die
        with pytest.raises(AnswerLost, match="step 4"):
            sequence.infer(x(4))
        play(sequence, range(5, 8))


def lose(server: FakeServer, store: Store) -> None:
    """Has the server die after the next step was saved, before its answer."""

    def die(number: int) -> None:
        for live in server.live.values():
            store.save(live.key, live.state)
        server.die_soon()

    server.after = die


def test_the_saved_state_is_gone(servers, store):
    with begin(servers) as sequence:
        play(sequence, range(7))
        current(sequence, servers).die()
        store.saved.clear()
        with pytest.raises(StateLost, match="at step 0, and requests before step 3"):
            sequence.infer(x(7))
        with pytest.raises(SequenceEnded):
            sequence.infer(x(7))


def test_nothing_was_saved_yet(servers, store):
    with begin(servers) as sequence:
        play(sequence, range(2))
        current(sequence, servers).die()
        store.saved.clear()
        play(sequence, range(2, 5))


def test_too_much_to_keep(servers, store):
    """A step is 8 bytes."""
    store.every = 0
    with begin(servers, keep_bytes=24) as sequence:
        play(sequence, range(5))
        current(sequence, servers).die()
        with pytest.raises(StateLost, match="requests before step 2"):
            sequence.infer(x(5))


def test_no_server_is_left(servers):
    with begin(servers, retry=Retry(attempts=6, delay=0.01)) as sequence:
        play(sequence, range(2))
        for server in servers:
            server.die()
        with pytest.raises(ServersLost, match="in 6 attempts") as lost:
            sequence.infer(x(2))
        assert isinstance(lost.value.__cause__, InferenceServerException)
        servers[0].start()
        time.sleep(0.5)  # gRPC connects again
        play(sequence, range(2, 4))


@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_request_is_no_loss(servers, stream):
    with begin(servers, stream=stream) as sequence:
        play(sequence, range(4))
        with pytest.raises(InferenceServerException, match="a negative value"):
            sequence.infer(x(-1))
        play(sequence, range(4, 6))
        assert sequence.recoveries == 0


def test_a_full_server(servers):
    """START is refused there, so the other one gets the sequence."""
    with begin(servers) as sequence:

        def full(number: int) -> None:
            raise Refused(grpc.StatusCode.INTERNAL, "too many simultaneous sequences: 3 (max_candidate_sequences)")

        current(sequence, servers).before = full
        play(sequence, range(3))


def test_a_server_that_counts_no_steps(servers):
    servers[0].counts_steps = False
    with begin(servers[:1]) as sequence, pytest.raises(Unsupported):
        sequence.infer(x(0))


def test_save(servers, store):
    with begin(servers[:1]) as sequence:
        sequence.infer(x(1), save=True)
        assert sequence.saved_step == 1
        assert store.saved[sequence.key].sum == 1


def test_inputs_are_copied(servers):
    with begin(servers) as sequence:
        value = x(7)
        sequence.infer(value)
        value["x"][:] = 100
        current(sequence, servers).die()
        assert y(sequence.infer(x(1))) == 8


def test_keys_and_correlation_ids_are_unique(servers):
    made = [begin(servers[:1]) for _ in range(100)]
    assert len({sequence.key for sequence in made}) == len({sequence.correlation for sequence in made}) == 100
    assert {sequence._replay.server for sequence in (begin(servers) for _ in range(100))} == {0, 1}


def test_asyncio(servers):
    async def run() -> None:
        clients = aio.connect(*(server.address for server in servers))
        sequence = AsyncSequence(clients, "sum", retry=FAST)
        for value in range(10):
            if value == 5:
                await asyncio.to_thread(servers[sequence._replay.server].die)
            assert y(await sequence.infer(x(value))) == sum(range(value + 1))
        assert sequence.recoveries == 1
        for client in clients:
            await client.close()

    asyncio.run(run())
