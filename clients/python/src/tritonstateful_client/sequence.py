"""A sequence that goes on when its server does not. See the package for an example."""

import time
from collections.abc import Mapping
from collections.abc import Sequence as List
from types import TracebackType

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferResult
from tritonclient.utils import InferenceServerException

from .base import SequenceBase
from .replay import Call, Outcome, Pause, Steps
from .request import CHANNEL, make_request
from .stream import Stream


def connect(*addresses: str, **options) -> list[InferenceServerClient]:
    """Clients of the servers at HOST:PORT, or of one proxy before them. The options are those of InferenceServerClient.

    Their channels try a lost server again after a second at most, and take messages of any size.
    """
    options.setdefault("channel_args", CHANNEL)
    return [InferenceServerClient(address, **options) for address in addresses]


class Sequence(SequenceBase[InferenceServerClient]):
    """One sequence of requests to a stateful model, for one thread at a time.

    Every request carries its step, so that none is done twice. The requests that are not yet in the state store are kept.
    If the server is lost, the sequence is continued from the saved state, on another server or on this one when it is back,
    and the kept requests are sent again: their answers are the same, and the application sees only a pause.

    stream  send over a gRPC stream; the clients must then be of this sequence alone. The other parameters are those of
            SequenceBase.
    """

    def __init__(
        self, clients: InferenceServerClient | List[InferenceServerClient], model: str, *, stream: bool = False, **options
    ):
        super().__init__(clients, model, **options)
        self._streams = [Stream(client, self._headers) for client in self.clients] if stream else []

    def infer(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        outputs: List[str] | None = None,
        end: bool = False,
        save: bool = False,
    ) -> InferResult:
        """Sends the next request and returns its answer.

        inputs   arrays by name, in the shapes of Triton's requests; they are copied
        outputs  names of those to return; None for all
        end      this is the last request of the sequence
        save     answer only when the state is in the store

        Raises InferenceServerException if the server refuses the request; the step is then not done, and another request
        can be sent. Raises a SequenceError if the sequence cannot go on.
        """
        request = make_request(self.steps, inputs, outputs, end, save)
        return self._run(self._replay.infer(request))

    def end(self, inputs: Mapping[str, np.ndarray], *, outputs: List[str] | None = None) -> InferResult:
        """Sends the last request and returns its answer."""
        return self.infer(inputs, outputs=outputs, end=True)

    def close(self) -> None:
        """Closes the sequence's streams. A sequence that has not ended keeps its slot until it has idled too long."""
        for stream in self._streams:
            stream.close()

    def __enter__(self) -> "Sequence":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self, steps: Steps) -> InferResult:
        outcome: Outcome = None
        while True:
            try:
                action = steps.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(action, Pause):
                time.sleep(action.seconds)
                outcome = None
                continue
            try:
                outcome = self._send(action)
            except InferenceServerException as error:
                outcome = error

    def _send(self, call: Call) -> InferResult:
        values = self._arguments(call)
        if self._streams:
            return self._streams[call.server].infer(values, self.attempt_timeout)
        return self.clients[call.server].infer(**values, headers=self._headers, client_timeout=self.attempt_timeout)
