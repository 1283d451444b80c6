"""The report of a soak (scripts/soakreport.py): what it prints, and what fails a soak."""

import subprocess
from dataclasses import replace

import pytest

from checker import Tally
from oracle import ANSWERED, EVICTED, FORBIDDEN, FOREIGN
from soakreport import Process, Report

GOOD = Process(mib=100, threads=50, files=70)


def tally() -> Tally:
    one = Tally()
    one.kinds |= {ANSWERED: 9, EVICTED: 1}
    one.latencies = [3_000_000, 1_000_000]
    return one


def reported(processes: list[Process], breaks: bool = False, every: float = 5) -> Report:
    report = Report(breaks)
    report.header()
    for number, process in enumerate(processes):
        report.add(every * (number + 1), tally(), process)
    return report


def grown(**held) -> list[Process]:
    """Of a soak of 200 s, in the second half of which the server held that."""
    return [GOOD] * 20 + [replace(GOOD, **held)] * 20


def test_what_is_wrong_is_shown_at_once(capsys):
    """And at the end once more."""
    report = Report()
    one = tally()
    one.kinds[FOREIGN], one.kinds[FORBIDDEN] = 2, 1
    one.faults = ["plain, sequence 7: FOREIGN VALUES: the states are of 0x1 to 0x2"]
    report.add(5, one, GOOD)
    table = capsys.readouterr().out
    assert "answered 69.2%, FOREIGN VALUES: 2, evicted 7.7%, NOT ALLOWED: 1\n    plain, sequence 7: FOREIGN VALUES" in table
    assert report.verdict(checking=0) == ["2 answers had foreign or wrong values", "1 errors should not be"]
    assert "the first faults:\nplain, sequence 7: FOREIGN VALUES" in capsys.readouterr().out


@pytest.mark.parametrize("processes, faults", [
    ([GOOD] * 40, []),
    (grown(mib=115.9, threads=52, files=78), []),
    (grown(mib=116.1), ["MiB of memory grew from 100 to 116"]),
    (grown(threads=53), ["threads grew from 50 to 53"]),
    (grown(files=79), ["open files grew from 70 to 79"]),
    (grown(mib=200, threads=99), ["MiB of memory grew from 100 to 200", "threads grew from 50 to 99"]),
    ([replace(GOOD, mib=1000)] * 20 + [replace(GOOD, mib=1049)] * 20, []),
    ([replace(GOOD, mib=1000)] * 20 + [replace(GOOD, mib=1051)] * 20, ["MiB of memory grew from 1000 to 1051"]),
    ([GOOD] * 20 + [replace(GOOD, mib=900)] * 10 + [GOOD] * 10, []),  # between them, it may
    ([replace(GOOD, mib=10)] * 10 + [GOOD] * 30, []),  # before them, too
    ([GOOD] * 30 + [replace(GOOD, mib=116.1)] * 10, ["MiB of memory grew from 100 to 116"]),
])  # fmt: skip
def test_growth(processes, faults):
    """The median of the last quarter is compared with that of the second."""
    assert reported(processes).verdict(checking=0) == faults


def test_growth_is_not_judged(capsys):
    assert reported(grown(mib=200), breaks=True).verdict(checking=0) == []
    assert "memory is not checked: tritonserver" in capsys.readouterr().out
    for few in (reported(grown(mib=200)[:23]), reported(grown(mib=200)[17:24], every=60)):
        assert few.verdict(checking=0) == []
        assert "memory is not checked: that takes 2m00s and 8 lines of report" in capsys.readouterr().out


def test_process():
    with subprocess.Popen(["sleep", "60"]) as process:
        held = Process.read(process.pid)
        process.kill()
    assert 0 < held.mib < 100 and held.threads == 1 and held.files >= 3
    assert Process.read(process.pid) == Process(0, 0, 0), "after its end"
