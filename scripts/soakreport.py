"""The report of a soak: a line for each interval, and how it ended."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from checker import Tally
from oracle import ANSWERED, FORBIDDEN, FOREIGN

# The growth between the second and the last quarter of a soak that still counts as flat.
FLAT_MIB = 16  # or a 20th of it, if that is more
FLAT_THREADS = 2
FLAT_FILES = 8

FLAT_AFTER = 120  # seconds that a soak must take before its memory is checked: until then the allocators' pools fill
FEWEST_SAMPLES = 8  # of which each quarter has two

FIRST_FAULTS = 3  # that are shown again at the end, where they cannot be overlooked


@dataclass(frozen=True)
class Process:
    """What a process holds at a moment."""

    mib: float  # resident memory
    threads: int
    files: int  # open

    @classmethod
    def read(cls, pid: int) -> "Process":
        """Of a process; nothing if it has ended."""
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                return cls(process.memory_info().rss / 2**20, process.num_threads(), process.num_fds())
        except psutil.Error:
            return cls(0, 0, 0)


class Report:
    """Prints a line for each interval, and sums all up.

    breaks  whether streams are broken off; then memory is not checked
    """

    def __init__(self, breaks: bool = False):
        self.breaks = breaks
        self.sum = Tally()
        self.seconds = 0.0  # since the start
        self.samples: list[Process] = []
        self.first: list[str] = []  # faults

    def header(self) -> None:
        print(f"{'time':>8} {'steps':>10} {'steps/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'RSS MiB':>8} "
            f"{'threads':>8} {'fds':>5}  answers")  # fmt: skip

    def add(self, seconds: float, tally: Tally, process: Process) -> None:
        """Prints what an interval showed. seconds is its end, counted from the start."""
        self.sum.add(tally)
        self.samples.append(process)
        rate = tally.total / (seconds - self.seconds)
        self.seconds = seconds
        latencies = sorted(tally.latencies)
        p50, p99, most = (f"{percentile(latencies, percent) / 1e6:.1f}" for percent in (50, 99, 100))
        print(f"{clock(seconds):>8} {self.sum.total:>10} {rate:>8.0f} {p50:>8} {p99:>8} {most:>8} {process.mib:>8.0f} "
            f"{process.threads:>8} {process.files:>5}  {shares(tally)}")  # fmt: skip
        for fault in tally.faults:
            print(f"    {fault}")
        self.first += tally.faults[: FIRST_FAULTS - len(self.first)]
        print(end="", flush=True)

    def verdict(self, checking: float) -> list[str]:
        """Prints the sums; returns what is wrong. checking is the processor time in seconds that the checker took."""
        print()
        for kind, count in self.sum.kinds.items():
            print(f"{count:>10} {kind}")
        print(f"{self.sum.total:>10} steps in all")
        if self.sum.total:
            print(f"checked in {checking / self.sum.total * 1e6:.1f} µs each, {checking / self.seconds:.0%} of a processor")
        if self.first:
            print("\n".join(["the first faults:", *self.first]))
        faults = []
        if count := self.sum.kinds[FOREIGN]:
            faults.append(f"{count} answers had foreign or wrong values")
        if count := self.sum.kinds[FORBIDDEN]:
            faults.append(f"{count} errors should not be")
        if not self.sum.kinds[ANSWERED]:
            faults.append("nothing was answered")
        return faults + self._growth()

    def _growth(self) -> list[str]:
        """What the server has more of at the end than after it had warmed up."""
        if self.breaks:
            print("memory is not checked: tritonserver 2.51 keeps some of every cancelled request, whatever the backend")
            return []
        if self.seconds < FLAT_AFTER or len(self.samples) < FEWEST_SAMPLES:
            print(f"memory is not checked: that takes {clock(FLAT_AFTER)} and {FEWEST_SAMPLES} lines of report")
            return []
        faults = [
            self._grew("MiB of memory", lambda process: process.mib, lambda before: max(FLAT_MIB, before / 20)),
            self._grew("threads", lambda process: process.threads, lambda before: FLAT_THREADS),
            self._grew("open files", lambda process: process.files, lambda before: FLAT_FILES),
        ]
        return [fault for fault in faults if fault]

    def _grew(self, what: str, held: Callable[[Process], float], allowed: Callable[[float], float]) -> str:
        quarter = len(self.samples) // 4
        before, after = (
            statistics.median(map(held, some)) for some in (self.samples[quarter : 2 * quarter], self.samples[3 * quarter :])
        )
        print(f"{what}: {before:.0f} in the second quarter, {after:.0f} in the last")
        return f"{what} grew from {before:.0f} to {after:.0f}" if after > before + allowed(before) else ""


def percentile(ordered: list[int], percent: int) -> int:
    """The percentile by nearest rank; 0 of an empty list."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1] if ordered else 0


def clock(seconds: float) -> str:
    """Such as 45s or 6m05s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def shares(tally: Tally) -> str:
    """What came of the requests in percent, the most frequent first; counts of what should not be."""
    words = []
    for kind, count in sorted(tally.kinds.items(), key=lambda item: -item[1]):
        if count:
            words.append(f"{kind}: {count}" if kind in (FORBIDDEN, FOREIGN) else f"{kind} {count / tally.total:.1%}")
    return ", ".join(words)
