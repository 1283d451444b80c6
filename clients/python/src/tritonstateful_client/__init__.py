"""Sequences on Triton's stateful backend that outlive their server.

    from tritonstateful_client import Sequence, connect

    clients = connect("triton-0:8001", "triton-1:8001")        # or one proxy: connect("envoy:8001")
    with Sequence(clients, "asr") as sequence:
        for chunk in chunks:
            print(sequence.infer({"audio": chunk}).as_numpy("text"))
        print(sequence.end({"audio": last}).as_numpy("text"))

If a server dies, is restarted or loses the sequence, the sequence is continued from its saved state, and the requests since
are sent again: the application sees a pause, and the same answers as without it. The model needs the parameter state_store.

Sequence is in sequence.py, its asyncio twin in aio.py; replay.py decides what is sent, and errors.py what errors mean.
"""

from .aio import AsyncSequence
from .errors import AnswerLost, SequenceEnded, SequenceError, ServersLost, StateLost, Unsupported, WrongStep
from .replay import Retry
from .sequence import Sequence, connect

__all__ = [
    "AnswerLost",
    "AsyncSequence",
    "Retry",
    "Sequence",
    "SequenceEnded",
    "SequenceError",
    "ServersLost",
    "StateLost",
    "Unsupported",
    "WrongStep",
    "connect",
]
