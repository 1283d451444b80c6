"""A short soak: clients that do as they please never see another sequence's state (scripts/soak.py)."""

import soak
from account import ANSWERED, DROPPED, EVICTED, FORBIDDEN, FOREIGN, FULL, REFUSED, UNCERTAIN, Rules
from conftest import Folder
from exchanges import END, RECORD
from judge import Judge


class Listening(Judge):
    """A judge who keeps what he is given."""

    def __init__(self, models: list[Rules]):
        super().__init__(models)
        self.heard = bytearray()

    def take(self, piece: bytes) -> None:
        self.heard += piece
        super().take(piece)


def test_soak(serve):
    """Some seconds of go run build.go soak: every answer is right, or an error that the model allows.

    Then the same answers again, one of them with one wrong byte: that is seen.
    """
    models = {model.name: Folder(model.config(), model.graph()) for model in soak.MODELS}
    server = serve(models, options=soak.OPTIONS)
    soak.build()
    rules = [model.rules() for model in soak.MODELS]
    judge = Listening(rules)
    load = soak.Load(minutes=25 / 60, steps=250_000, breaks=2)
    assert soak.soak(server, load, judge) == []
    assert server.stop() in load.exit_codes, server.log_tail()

    records = judge.heard
    records[value_in_the_middle(records)] ^= 1
    again = Judge(rules)
    again.take(bytes(records))
    seen = again.tally.kinds
    assert seen[FOREIGN] == 1
    assert seen[FORBIDDEN] == 0
    assert all(seen[kind] > 0 for kind in (ANSWERED, UNCERTAIN, DROPPED, EVICTED, REFUSED, FULL)), seen


def value_in_the_middle(records: bytes) -> int:
    """Where the answer to a step has the least name that was found, about in the middle of the records."""
    at, answers = 0, []
    while at < len(records):
        length, _, flags, _, _, _, least, *_ = RECORD.unpack_from(records, at)
        if least and not flags & END:
            answers.append(at + 32)
        at += RECORD.size + length
    return answers[len(answers) // 2]
