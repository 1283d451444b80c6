"""The same for asyncio. Clients are those of tritonclient.grpc.aio."""

import asyncio
from collections.abc import Mapping
from collections.abc import Sequence as List

import numpy as np
from tritonclient.grpc import InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from .base import SequenceBase
from .replay import Outcome, Pause
from .request import CHANNEL, make_request


def connect(*addresses: str, **options) -> list[InferenceServerClient]:
    """Clients of the servers at HOST:PORT, or of one proxy before them. Call it while the event loop runs."""
    options.setdefault("channel_args", CHANNEL)
    return [InferenceServerClient(address, **options) for address in addresses]


class AsyncSequence(SequenceBase[InferenceServerClient]):
    """A Sequence whose infer is awaited."""

    async def infer(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        outputs: List[str] | None = None,
        end: bool = False,
        save: bool = False,
    ) -> InferResult:
        """Sends the next request and returns its answer. Parameters and errors are those of Sequence.infer."""
        steps = self._replay.infer(make_request(self.steps, inputs, outputs, end, save))
        outcome: Outcome = None
        while True:
            try:
                action = steps.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(action, Pause):
                await asyncio.sleep(action.seconds)
                outcome = None
                continue
            client = self.clients[action.server]
            try:
                outcome = await client.infer(
                    **self._arguments(action), headers=self._headers, client_timeout=self.attempt_timeout
                )
            except InferenceServerException as error:
                outcome = error
