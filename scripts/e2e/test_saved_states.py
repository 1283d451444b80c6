"""States that outlive their server: saved in a store by one server, restored by another."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from configs import config, direct, io, oldest
from conftest import Folder
from graphs import running_sum

F32 = np.float32


def folder(store: Path, scheduler: str | None = None, **parameters: str) -> Folder:
    text = config([io("x", "FP32", 3)], [io("y", "FP32", 3)], scheduler or oldest(0), state_store=f"file:{store}", **parameters)
    return Folder(text, running_sum("batch", 3))


class Client:
    """Sends requests to one server; each step of a sequence adds the next number."""

    def __init__(self, server, model: str = "sum"):
        self.client, self.model = InferenceServerClient(server.grpc_url), model

    def __call__(self, sequence: int | str, value: float, start: bool = False, end: bool = False, **parameters):
        """The first element of the answer, and its parameters that begin with stateful_."""
        x = InferInput("x", [1, 3], "FP32")
        x.set_data_from_numpy(np.full((1, 3), value, F32))
        answer = self.client.infer(
            self.model,
            [x],
            sequence_id=sequence,
            sequence_start=start,
            sequence_end=end,
            parameters=parameters or None,
            client_timeout=20,
        )
        got = answer.get_response().parameters
        told = {
            name.removeprefix("stateful_"): getattr(got[name], got[name].WhichOneof("parameter_choice"))
            for name in got
            if name.startswith("stateful_")
        }
        return answer.as_numpy("y")[0, 0], told


def saved(client: Client, sequence: int | str, value: float, step: int) -> float:
    """Sends one step whose answer waits until it is saved."""
    got, told = client(sequence, value, stateful_save=True)
    assert told["step"] == told["saved_step"] == step
    return got


@pytest.mark.parametrize("scheduler", [oldest(0), direct()], ids=["oldest", "direct"])
def test_killed(serve, tmp_path: Path, scheduler: str):
    """A sequence goes on at another server when its own is killed."""
    models = {"sum": folder(tmp_path / "store", scheduler, checkpoint="steps=2")}
    first = serve(models)
    client = Client(first)
    assert client(7, 1, start=True)[0] == 1
    assert client(8, 10, start=True)[0] == 10
    assert saved(client, 7, 2, 2) == 3
    assert client(7, 3)[0] == 6  # not saved
    first.kill()
    other = Client(serve(models))
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        other(7, 3)
    assert other(7, 3, start=True, stateful_resume="require") == (6, {"step": 3, "saved_step": 2, "resumed": True})
    assert saved(other, 7, 4, 4) == 10
    assert saved(other, 7, 5, 5) == 15
    # Its answer is lost: the step is made again from the state before.
    assert other(7, 5, start=True, stateful_resume="try", stateful_step=4) == (15, {"step": 5, "saved_step": 4, "resumed": True})
    with pytest.raises(InferenceServerException, match="step 3 was done before: expected step 5"):
        other(7, 5, start=True, stateful_resume="try", stateful_step=3)
    with pytest.raises(InferenceServerException, match="no state of it is saved") as missing:
        other(8, 20, start=True, stateful_resume="require")
    assert "NOT_FOUND" in str(missing.value.status())
    assert other(8, 20, start=True, stateful_resume="try")[0] == 20
    assert other(7, 5, end=True)[0] == 20
    wait_until_refused(other, 7)


def wait_until_refused(client: Client, sequence: int) -> None:
    """Waits until nothing is saved of a sequence that ended: that happens in the background."""
    for _ in range(50):
        try:
            client(sequence, 1, start=True, end=True, stateful_resume="require", stateful_drop=False)
        except InferenceServerException as refused:
            assert "no state of it is saved" in str(refused)
            return
        time.sleep(0.1)
    pytest.fail("what is saved was not deleted")


def test_stopped(serve, tmp_path: Path):
    """A server that was stopped while another one took its sequence over neither saves it nor goes on with it."""
    models = {"sum": folder(tmp_path / "store", checkpoint="steps=1"), "each": folder(tmp_path / "each", checkpoint="sync")}
    first, second = serve(models), serve(models)
    for model in models:
        old, new = Client(first, model), Client(second, model)
        assert old(7, 1, start=True)[0] == 1
        assert saved(old, 7, 1, 2) == 2
        first.signal(signal.SIGSTOP)
        assert new(7, 1, start=True, stateful_resume="require")[0] == 3
        assert saved(new, 7, 1, 4) == 4
        first.signal(signal.SIGCONT)
        with pytest.raises(InferenceServerException, match="taken over by another server"):
            old(7, 1, stateful_save=True)
        # A request that comes before the instance has heard of the refusal runs, and is not answered: its step is not saved.
        told = "taken over by another server|must specify the START|the sequence has lost its state here"
        with pytest.raises(InferenceServerException, match=told):
            old(7, 1)
        assert saved(new, 7, 1, 5) == 5
        assert old(7, 1, start=True, stateful_resume="require")[0] == 6


def test_unloaded(serve, tmp_path: Path):
    """What is not saved is saved when the model is unloaded."""
    models = {"sum": folder(tmp_path / "store", checkpoint="steps=1000")}
    first = serve(models, explicit=True)
    first.load("sum")
    client = Client(first)
    for sequence in range(1, 21):
        client(sequence, sequence, start=True)
    first.unload("sum")
    other = Client(serve(models))
    for sequence in range(1, 21):
        assert other(sequence, 1, start=True, stateful_resume="require")[0] == sequence + 1


def test_every_step(serve, tmp_path: Path):
    """With sync, no answer is without a saved state."""
    models = {"sum": folder(tmp_path / "store", checkpoint="sync")}
    first = serve(models)
    client = Client(first)
    for step in range(5):
        got = client(7, 1, start=step == 0, stateful_step=step)
        assert got == (step + 1, {"step": step + 1, "saved_step": step + 1, "resumed": False})
        first.kill() if step == 4 else None
    other = Client(serve(models))
    assert other(7, 1, start=True, stateful_resume="require", stateful_step=5)[0] == 6
    with pytest.raises(InferenceServerException, match="step 5 was done before: expected step 6"):
        other(7, 1, stateful_step=5)
    with pytest.raises(InferenceServerException, match="step 7 leaves a gap: expected step 6"):
        other(7, 1, stateful_step=7)
    assert other(7, 1, stateful_step=6)[0] == 7


def test_refused(refusal, tmp_path: Path):
    """A store that cannot be used fails the load; what is wrong is in the message."""
    (tmp_path / "file").write_text("no folder")
    wrong = {
        "scheme": "http://localhost:6379",
        "relative": "file:states",
        "password": "valkey://user:secret@localhost:6379/0",
        "file": f"file:{tmp_path / 'file'}",
    }
    for name, url in wrong.items():
        text = config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0), state_store=url)
        said = refusal(name, Folder(text, running_sum("batch", 3)))
        assert "state_store" in said
        assert "secret" not in said
    text = config([io("x", "FP32", 3)], [io("y", "FP32", 3)], oldest(0), state_store=f"file:{tmp_path}", checkpoint="often")
    assert "want steps=N, interval=MS" in refusal("often", Folder(text, running_sum("batch", 3)))
