"""A short soak: clients that misuse sequences never see another sequence's state (scripts/soak.py)."""

import soak
from checker import Checker
from conftest import Folder
from history import END, RECORD
from oracle import ANSWERED, DROPPED, EVICTED, FORBIDDEN, FOREIGN, FULL, REFUSED, UNCERTAIN, Rules


def served(seed: int) -> tuple[dict[str, Folder], list[Rules]]:
    """The models with each scheduler in turn, and their rules."""
    models = soak.under(list(soak.SCHEDULERS), seed)
    return {model.name: Folder(model.config(), model.graph()) for model in models}, [model.rules() for model in models]


class Listening(Checker):
    """A checker that stores what it is given."""

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
    folders, rules = served(1)
    server = serve(folders, options=soak.OPTIONS)
    soak.build()
    checker = Listening(rules)
    load = soak.Load(minutes=25 / 60, steps=250_000, breaks=2)
    assert soak.soak(server, load, checker) == []
    assert server.stop() in load.exit_codes, server.log_tail()

    records = checker.heard
    records[value_in_the_middle(records)] ^= 1
    again = Checker(rules)
    again.take(bytes(records))
    seen = again.tally.kinds
    assert seen[FOREIGN] == 1
    assert seen[FORBIDDEN] == 0
    assert all(seen[kind] > 0 for kind in (ANSWERED, UNCERTAIN, DROPPED, EVICTED, REFUSED, FULL)), seen


def test_a_soak_without_breaks_ends_in_order(serve):
    """The streams end and all models unload, which a single request that is never released would prevent."""
    folders, rules = served(2)
    server = serve(folders, options=soak.OPTIONS)
    soak.build()
    load = soak.Load(minutes=5 / 60, steps=50_000)
    assert soak.soak(server, load, Checker(rules)) == []
    assert load.exit_codes == (0,)
    assert server.stop() == 0, server.log_tail()


def value_in_the_middle(records: bytes) -> int:
    """Where the answer to a step has the least name that was found, about in the middle of the records."""
    at, answers = 0, []
    while at < len(records):
        length, _, flags, _, _, _, least, *_ = RECORD.unpack_from(records, at)
        if least and not flags & END:
            answers.append(at + 32)
        at += RECORD.size + length
    return answers[len(answers) // 2]
