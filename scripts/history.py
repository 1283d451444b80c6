"""What the clients of a soak saw: requests and their answers, as internal/bench/soak writes them."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

# Flags of an exchange.
START = 1
END = 2
CANCELLED = 4  # by the client, so that it may have run or not
EMPTY = 8  # the answer has no values

# A record, little-endian: bytes of the error text, number of the model, flags, correlation ID, name, successor, least,
# greatest, count, sent, latency. The text follows. See appendRecord in internal/bench/soak/record.go.
RECORD = struct.Struct("<IHHQ7q")


class Exchange(NamedTuple):
    """A request and its answer. The exchanges of one model and ID come in the order in which they were sent."""

    model: int  # its number
    flags: int
    id: int  # correlation ID
    name: int  # that the request brought; with START it becomes the sequence's
    successor: int  # name of the sequence whose START was sent right after this END; 0: none was
    least: int  # name found in the states
    greatest: int
    count: int  # of steps, found in the states
    sent: int  # ns since the load began
    latency: int  # ns
    error: str  # empty: there was none


class Reader:
    """Makes exchanges of bytes that come in pieces of any size."""

    def __init__(self):
        self.rest = b""  # the beginning of an exchange whose end has not come

    def feed(self, piece: bytes) -> Iterator[Exchange]:
        """The exchanges that are whole with this piece; take all of them before the next."""
        data, at, unpack, size = self.rest + piece, 0, RECORD.unpack_from, RECORD.size
        while at + size <= len(data):
            length, *numbers = unpack(data, at)
            end = at + size + length
            if end > len(data):
                break
            yield Exchange(*numbers, data[at + size : end].decode(errors="replace") if length else "")
            at = end
        self.rest = data[at:]
