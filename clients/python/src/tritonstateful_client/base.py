"""What sequences have in common, whether their infer is awaited or not."""

import zlib
from collections.abc import Sequence as List
from typing import Any, Generic, TypeVar

from .replay import Call, Replay, Retry
from .request import HEADER, arguments, new_id, new_key

Client = TypeVar("Client")


class SequenceBase(Generic[Client]):
    """One sequence of requests to a stateful model, one request at a time.

    clients         of the servers, as connect() makes them, or of one proxy
    model           name of the model; version "" is the one that the server chooses
    key             names the state in the store; by default one that no other sequence has
    correlation     the correlation ID; by default a number that no other sequence has
    attempt_timeout seconds after which a server that does not answer is lost
    keep_bytes      of inputs that are kept at most. If more are not yet saved, the oldest are dropped, and a loss of the
                    server can be a StateLost
    retry           how long to try
    """

    def __init__(
        self,
        clients: Client | List[Client],
        model: str,
        *,
        version: str = "",
        key: str | None = None,
        correlation: int | str | None = None,
        attempt_timeout: float = 30.0,
        keep_bytes: int = 64 << 20,
        retry: Retry = Retry(),
    ):
        self.clients: list[Client] = list(clients) if isinstance(clients, list | tuple) else [clients]  # type: ignore[list-item]
        self.model, self.version = model, version
        self.key = new_key() if key is None else key
        self.correlation = new_id() if correlation is None else correlation
        self.attempt_timeout = attempt_timeout
        first = zlib.crc32(self.key.encode()) % len(self.clients)
        self._replay = Replay(len(self.clients), first, retry, keep_bytes)
        self._headers = {HEADER: self.key}

    @property
    def steps(self) -> int:
        """Steps that were answered."""
        return self._replay.steps

    @property
    def saved_step(self) -> int:
        """Steps that are safe in the state store, as the last answer said."""
        return self._replay.saved_step

    @property
    def recoveries(self) -> int:
        """How often the sequence was continued after its server or its state there was lost."""
        return self._replay.recoveries

    def _arguments(self, call: Call) -> dict[str, Any]:
        return arguments(call, self.model, self.version, self.key, self.correlation)
