"""The checker of a soak: it reads every record that the clients write, and one wrong byte is enough."""

from checker import Checker
from history import CANCELLED, EMPTY, END, RECORD, START, Exchange, Reader
from oracle import ANSWERED, EVICTED, FORBIDDEN, FOREIGN, KINDS, UNCERTAIN, Rules
from tritonserver import ROOT

# What TestRecordsAsTheCheckerReadsThem of internal/bench/soak writes.
GOLDEN = bytes.fromhex((ROOT / "internal" / "bench" / "soak" / "testdata" / "records.hex").read_text())
FIRST = 2**32 + 1
EXCHANGES = [
    Exchange(0, START, 1, FIRST, 0, FIRST, FIRST, 1, 5, 10**6, ""),
    Exchange(2, END | EMPTY, 2**63, 8, 9, 0, 0, 0, 3600 * 10**9, 7, ""),
    Exchange(1, EMPTY, 3, -1, 0, 0, 0, 0, 6, 8, "its state was evicted – 2s ago"),
    Exchange(1, START | END | CANCELLED, 4, 11, 0, 0, 0, 0, 7, 0, ""),
]
FIRST_VALUE = 32  # where the values of an answer begin in its record


def record(x: Exchange) -> bytes:
    return RECORD.pack(len(x.error), *x[:-1]) + x.error.encode()


def steps(count: int, model: int = 0, id: int = 7) -> list[Exchange]:
    """A sequence with as many steps, which is right."""
    name = id << 32
    return [
        Exchange(model, START if step == 1 else 0, id, name + step - 1, 0, name, name, step, step, 10**6, "")
        for step in range(1, count + 1)
    ]


def changed(whole: bytes, byte: int) -> bytes:
    return bytes(value ^ (4 if at == byte else 0) for at, value in enumerate(whole))


def checker() -> Checker:
    return Checker([Rules("plain", idle=10**9), Rules("evicts", idle=10**9, evicts=True)])


def test_it_reads_what_the_clients_write():
    reader = Reader()
    assert list(reader.feed(GOLDEN)) == EXCHANGES
    assert reader.rest == b""


def test_records_come_in_pieces_of_any_size():
    for size in range(1, len(GOLDEN)):
        reader = Reader()
        pieces = [GOLDEN[at : at + size] for at in range(0, len(GOLDEN), size)]
        assert [x for piece in pieces for x in reader.feed(piece)] == EXCHANGES, size
        assert reader.rest == b""


def test_it_counts_and_tells():
    """Every model and every ID has an oracle of its own, with its model's rules."""
    evicted = Exchange(0, EMPTY, 7, 99, 0, 0, 0, 0, 4, 10**6, "its state was evicted")
    cancelled = Exchange(0, CANCELLED, 8, 99, 0, 0, 0, 0, 4, 0, "")
    one = checker()
    for x in [*steps(3), *steps(3, model=1), *steps(2, id=8), evicted, evicted._replace(model=1), cancelled]:
        one.take(record(x))
    tally = one.take_away()
    counts = {ANSWERED: 8, EVICTED: 1, FORBIDDEN: 1, UNCERTAIN: 1}
    assert tally.kinds == dict.fromkeys(KINDS, 0) | counts
    assert tally.latencies == [10**6] * 10
    assert len(tally.faults) == 1
    assert tally.faults[0].startswith("plain, sequence 7: NOT ALLOWED: its state was evicted (answered 0.001 s after")
    assert one.take_away().total == 0
    assert one.seconds > 0


def test_one_wrong_byte():
    """Whichever byte of the three values of an answer is wrong, in the midst of right ones: it is seen, once."""
    records = [record(x) for x in steps(20)]
    for byte in range(FIRST_VALUE, FIRST_VALUE + 24):
        one = checker()
        one.take(b"".join(records[:10]) + changed(records[10], byte) + b"".join(records[11:]))
        assert one.tally.kinds == dict.fromkeys(KINDS, 0) | {ANSWERED: 19, FOREIGN: 1}, byte


def test_one_answer_less_or_twice():
    """An answer that is missing shows at the next, one that comes twice shows by itself."""
    records = [record(x) for x in steps(20)]
    for step in range(1, 19):
        for wrong in (records[:step] + records[step + 1 :], records[: step + 1] + records[step:]):
            one = checker()
            one.take(b"".join(wrong))
            assert one.tally.kinds[FOREIGN] > 0, step


def test_one_answer_to_the_wrong_client():
    """Two sequences in lockstep of which one gets the other's answer."""
    mine, other = steps(5), steps(5, id=8)
    mine[3] = mine[3]._replace(least=other[3].least, greatest=other[3].greatest)
    one = checker()
    for x, y in zip(mine, other):
        one.take(record(x) + record(y))
    assert one.tally.kinds[FOREIGN] == 1
    fault = "the states are of 0x800000000 to 0x800000000, the sequence is 0x700000000"
    assert one.tally.faults == [f"plain, sequence 7: FOREIGN VALUES: {fault}"]
