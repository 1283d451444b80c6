"""The model that a soak's answers are compared with (scripts/oracle.py): stories of a client, each with what is due."""

import pytest

from history import CANCELLED, EMPTY, END, START, Exchange
from oracle import (
    ANSWERED,
    BUDGET,
    DROPPED,
    EVICTED,
    EXPIRED,
    FAILED,
    FORBIDDEN,
    FOREIGN,
    FULL,
    OVERTAKEN,
    REFUSED,
    UNCERTAIN,
    UNKNOWN,
    Oracle,
    Rules,
)

IDLE = 2_000_000_000  # ns

# What the server says of sequences without a state.
DROPPED_TEXT = "inference request for sequence 7 to model 'm' must specify the START flag on the first request"
EXPIRED_TEXT = "sequence 7: its state expired 1s ago, after idling longer than 2s"
EVICTED_TEXT = "sequence 7: its state was evicted 1s ago"
UNKNOWN_TEXT = "sequence 7: no such sequence is known"
REFUSED_TEXT = "sequence 7: its START was refused 1s ago"
FAILED_TEXT = "sequence 7: its START failed 1s ago"
FULL_TEXT = "sequence 7: too many simultaneous sequences"
BUDGET_TEXT = "the states take 9 bytes: at most 9 bytes are allowed (max_state_memory_bytes)"


def told(name: int = 0, count: int = 0, *, flags: int = 0, brings: int = 99, successor: int = 0,
    least: int | None = None, after: float = 0, took: float = 0, error: str = "") -> Exchange:  # fmt: skip
    """An exchange whose answer is of a name and a count of steps: sent some seconds after the one before, and it took
    some."""
    least = name if least is None else least
    return Exchange(0, flags, 7, brings, successor, least, name, count, round(after * 1e9), round(took * 1e9), error)


def start(name: int, **more) -> Exchange:
    return told(name, 1, **({"flags": START, "brings": name} | more))


def error(text: str, **more) -> Exchange:
    return told(error=text, **({"flags": EMPTY} | more))


def cancelled(flags: int = 0) -> Exchange:
    return told(flags=flags | CANCELLED)


PLAIN = {}
EVICTS = {"evicts": True}
LIMITED = {"budget": True}
SILENT = {"end_silent": True}

STORIES = {
    "a sequence": (PLAIN, [
        (start(7), ANSWERED), (told(7, 2), ANSWERED), (told(7, 3, flags=END), ANSWERED),
        (error(DROPPED_TEXT), DROPPED),
        (start(8), ANSWERED), (told(8, 2), ANSWERED)]),
    "a sequence of one request": (PLAIN, [(start(7, flags=START | END), ANSWERED), (told(7, 2), FOREIGN)]),
    "a START without an END before": (PLAIN, [
        (start(7), ANSWERED), (told(7, 2), ANSWERED), (start(8), ANSWERED), (told(8, 2), ANSWERED)]),
    "a foreign name": (PLAIN, [(start(7), ANSWERED), (told(8, 2), FOREIGN)]),
    "the name of a request without START": (PLAIN, [(start(7), ANSWERED), (told(9, 2, brings=9), FOREIGN)]),
    "a part that is foreign": (PLAIN, [(start(7), ANSWERED), (told(7, 2, least=0), FOREIGN)]),
    "another part that is foreign": (PLAIN, [(start(7), ANSWERED), (told(8, 2, least=7), FOREIGN)]),
    "a wrong answer counts once": (PLAIN, [(start(7), ANSWERED), (told(8, 2), FOREIGN), (told(7, 3), ANSWERED)]),
    "a step twice": (PLAIN, [(start(7), ANSWERED), (told(7, 2), ANSWERED), (told(7, 2), FOREIGN)]),
    "a step left out": (PLAIN, [(start(7), ANSWERED), (told(7, 3), FOREIGN)]),
    "a START that is not one": (PLAIN, [(start(7), ANSWERED), (told(7, 2, flags=START, brings=8), FOREIGN)]),
    "a START on an older state": (PLAIN, [(told(8, 2, flags=START, brings=8), FOREIGN)]),
    "an answer after END": (PLAIN, [(start(7), ANSWERED), (told(7, 2, flags=END), ANSWERED), (told(7, 3), FOREIGN)]),
    "an answer without a sequence": (PLAIN, [(told(0, 1), FOREIGN)]),
    "an empty answer": (PLAIN, [(start(7), ANSWERED), (told(7, 2, flags=EMPTY), FOREIGN)]),
    "an empty answer to END": (PLAIN, [(start(7), ANSWERED), (told(flags=EMPTY | END), FOREIGN)]),
    "END that is not run": (SILENT, [
        (start(7), ANSWERED), (told(flags=EMPTY | END), ANSWERED), (error(UNKNOWN_TEXT), UNKNOWN)]),
    "END that is not run, without a sequence": (SILENT, [(told(flags=EMPTY | END), ANSWERED)]),
    "END that is not run, with values": (SILENT, [(start(7), ANSWERED), (told(7, 2, flags=END), FOREIGN)]),
    "END that is not run, of a START after it": (SILENT, [
        (start(7), ANSWERED), (told(8, 2, flags=END, successor=8), FOREIGN)]),
    "END that is not run, with an error": (SILENT | EVICTS, [
        (start(7), ANSWERED), (error(EVICTED_TEXT, flags=EMPTY | END), FORBIDDEN)]),
    "an answer after END that is not run": (SILENT, [
        (start(7), ANSWERED), (told(flags=EMPTY | END), ANSWERED), (told(7, 2), FOREIGN)]),
    "evicted": (EVICTS, [(start(7), ANSWERED), (error(EVICTED_TEXT), EVICTED), (told(7, 2), FOREIGN)]),
    "evicted without a sequence": (PLAIN, [(start(7), ANSWERED), (error(EVICTED_TEXT), FORBIDDEN)]),
    "a START evicted": (EVICTS, [(error(EVICTED_TEXT, flags=START), FORBIDDEN)]),
    "full": (PLAIN, [(error(FULL_TEXT, flags=START), FULL), (error(REFUSED_TEXT), REFUSED)]),
    "full where others give way": (EVICTS, [(error(FULL_TEXT, flags=START), FORBIDDEN)]),
    "full for a sequence that is there": (PLAIN, [(start(7), ANSWERED), (error(FULL_TEXT), FORBIDDEN)]),
    "an answer after full": (PLAIN, [(error(FULL_TEXT, flags=START), FULL), (told(7, 2), FOREIGN)]),
    "refused for no reason": (PLAIN, [(start(7), ANSWERED), (error(REFUSED_TEXT), FORBIDDEN)]),
    "forgotten for no reason": (PLAIN, [(start(7), ANSWERED), (error(DROPPED_TEXT), FORBIDDEN)]),
    "unknown for no reason": (PLAIN, [(start(7), ANSWERED), (error(UNKNOWN_TEXT), FORBIDDEN)]),
    "END overtaken": (PLAIN, [
        (start(7), ANSWERED), (told(8, 2, flags=END, successor=8), OVERTAKEN), (start(8), ANSWERED),
        (error(UNKNOWN_TEXT), UNKNOWN)]),
    "an answer after END was overtaken": (PLAIN, [
        (start(7), ANSWERED), (told(8, 2, flags=END, successor=8), OVERTAKEN), (start(8), ANSWERED),
        (told(8, 3), FOREIGN)]),
    "the next sequence after END was overtaken": (PLAIN, [
        (start(7), ANSWERED), (told(8, 2, flags=END, successor=8), OVERTAKEN), (start(8), ANSWERED),
        (start(9), ANSWERED),
        (told(9, 2), ANSWERED)]),
    "the next sequence after END was overtaken by a START that was cancelled": (PLAIN, [
        (start(7), ANSWERED), (told(8, 2, flags=END, successor=8), OVERTAKEN), (cancelled(START), UNCERTAIN),
        (start(9), ANSWERED),
        (told(9, 2), ANSWERED)]),
    "END in order": (PLAIN, [
        (start(7), ANSWERED), (told(7, 2, flags=END, successor=8), ANSWERED), (start(8), ANSWERED),
        (told(8, 2), ANSWERED)]),
    "END in order, then unknown": (PLAIN, [
        (start(7), ANSWERED), (told(7, 2, flags=END, successor=8), ANSWERED), (start(8), ANSWERED),
        (error(UNKNOWN_TEXT), FORBIDDEN)]),
    "END of a state of zeros": (PLAIN, [(start(7), ANSWERED), (told(0, 2, flags=END), FOREIGN)]),
    "END of the next sequence, too late for the first step": (PLAIN, [
        (start(7), ANSWERED), (told(8, 3, flags=END, successor=8), FOREIGN)]),
    "END overtaken by no START": (PLAIN, [(start(7), ANSWERED), (told(8, 2, flags=END), FOREIGN)]),
    "END that is not run, overtaken": (SILENT, [
        (start(7), ANSWERED), (told(flags=EMPTY | END, successor=8), ANSWERED), (start(8), ANSWERED),
        (error(UNKNOWN_TEXT), UNKNOWN)]),
    "END that is not run, in order": (SILENT, [
        (start(7), ANSWERED), (told(flags=EMPTY | END, successor=8), ANSWERED), (start(8), ANSWERED),
        (told(8, 2), ANSWERED),
        (error(UNKNOWN_TEXT), FORBIDDEN)]),
    "END that is not run, and the sequence after the next": (SILENT, [
        (start(7), ANSWERED), (told(flags=EMPTY | END, successor=8), ANSWERED), (start(8), ANSWERED),
        (start(9), ANSWERED),
        (error(UNKNOWN_TEXT), FORBIDDEN)]),
    "idle": (PLAIN, [(start(7), ANSWERED), (error(DROPPED_TEXT, after=2.1), DROPPED)]),
    "idle on the way": (PLAIN, [(start(7), ANSWERED), (error(EXPIRED_TEXT, after=1, took=1.1), EXPIRED)]),
    "idle, and yet served": (PLAIN, [(start(7), ANSWERED), (told(7, 2, after=9), ANSWERED)]),
    "dropped too early": (PLAIN, [(start(7), ANSWERED), (error(DROPPED_TEXT, after=1, took=0.9), FORBIDDEN)]),
    "expired too early": (PLAIN, [(start(7), ANSWERED), (error(EXPIRED_TEXT, after=1.9), FORBIDDEN)]),
    "idle, counted from the last request": (PLAIN, [
        (start(7), ANSWERED), (told(7, 2, after=1.5), ANSWERED), (error(EXPIRED_TEXT, after=1.5), FORBIDDEN)]),
    "idle, counted from the last request that surely came": (PLAIN, [
        (start(7), ANSWERED), (told(flags=CANCELLED, after=1.5), UNCERTAIN), (error(EXPIRED_TEXT, after=0.6), EXPIRED)]),
    "expired too early after a cancelled request": (PLAIN, [
        (start(7), ANSWERED), (told(flags=CANCELLED, after=1.3), UNCERTAIN), (error(EXPIRED_TEXT, after=0.6), FORBIDDEN)]),
    "over the budget": (LIMITED, [(start(7), ANSWERED), (error(BUDGET_TEXT), BUDGET), (told(7, 2), ANSWERED)]),
    "a step that was run although it was over the budget": (LIMITED, [
        (start(7), ANSWERED), (error(BUDGET_TEXT), BUDGET), (told(7, 3), FOREIGN)]),
    "a START over the budget": (LIMITED, [(error(BUDGET_TEXT, flags=START), BUDGET), (error(FAILED_TEXT), FAILED)]),
    "a START over the budget ends what was": (LIMITED, [
        (start(7), ANSWERED), (error(BUDGET_TEXT, flags=START), BUDGET), (told(7, 2), FOREIGN)]),
    "END over the budget": (LIMITED, [
        (start(7), ANSWERED), (error(BUDGET_TEXT, flags=END), BUDGET), (error(UNKNOWN_TEXT), UNKNOWN)]),
    "over the budget where there is none": (PLAIN, [(start(7), ANSWERED), (error(BUDGET_TEXT), FORBIDDEN)]),
    "a strange error": (PLAIN, [(error("internal error", flags=START), FORBIDDEN)]),
    "a strange error, after which the state is as before": (PLAIN, [
        (start(7), ANSWERED), (error("internal error"), FORBIDDEN), (told(7, 2), ANSWERED)]),
    "a cancelled step that was run": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (told(7, 3), ANSWERED), (told(7, 4), ANSWERED)]),
    "a cancelled step that was not": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (told(7, 2), ANSWERED), (told(7, 3), ANSWERED)]),
    "two cancelled steps are three at most": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (cancelled(), UNCERTAIN), (told(7, 5), FOREIGN)]),
    "cancelled steps take none back": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (told(7, 1), FOREIGN)]),
    "a cancelled step is one once": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (told(7, 2), ANSWERED), (told(7, 4), FOREIGN)]),
    "a foreign name after a cancelled step": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (told(8, 2), FOREIGN)]),
    "Triton forgets a sequence of which a request was cancelled": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (error(DROPPED_TEXT), DROPPED)]),
    "a cancelled START": (PLAIN, [(cancelled(START), UNCERTAIN), (start(8), ANSWERED), (told(8, 2), ANSWERED)]),
    "a cancelled START ends what was": (PLAIN, [
        (start(7), ANSWERED), (cancelled(START), UNCERTAIN), (told(7, 2), FOREIGN)]),
    "an answer after a cancelled END": (PLAIN, [
        (start(7), ANSWERED), (cancelled(END), UNCERTAIN), (told(7, 3), FOREIGN)]),
    "a cancelled END": (PLAIN, [
        (start(7), ANSWERED), (cancelled(END), UNCERTAIN), (start(8), ANSWERED), (told(8, 2), ANSWERED)]),
    "cancelled steps are none of the next sequence": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (start(8), ANSWERED), (told(8, 3), FOREIGN)]),
    "cancelled steps are none of the next START": (PLAIN, [
        (start(7), ANSWERED), (cancelled(), UNCERTAIN), (told(8, 2, flags=START, brings=8), FOREIGN)]),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_oracle(story):
    """The exchanges of one client, each with its kind; what is wrong is said exactly where something is."""
    rules, exchanges = STORIES[story]
    oracle = Oracle(Rules("m", idle=IDLE, **rules))
    sent = 0
    for number, (x, due) in enumerate(exchanges):
        sent += x.sent
        kind, fault = oracle.settle(x._replace(sent=sent))
        assert kind == due, f"exchange {number}: {fault}"
        assert (fault != "") == (due in (FORBIDDEN, FOREIGN)), f"exchange {number}"
