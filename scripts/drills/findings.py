"""What drills found, and the table of it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchreport import aligned

WIDEST = 45  # characters of a cell


@dataclass(frozen=True)
class Finding:
    """A figure of a drill. limit says what it should be; without one it is only for the reader."""

    what: str
    found: str
    limit: str = ""
    good: bool = True


def none(what: str, count: int, of: int | None = None) -> Finding:
    """Something that must not have happened."""
    return Finding(what, f"{count:,}" if of is None else f"{count:,} of {of:,}", "0", count == 0)


def at_most(what: str, value: float, limit: float, unit: str, digits: int = 1) -> Finding:
    return Finding(what, f"{value:.{digits}f} {unit}", f"at most {limit:g} {unit}", value <= limit)


def at_least(what: str, value: int, limit: int) -> Finding:
    """A drill in which nothing happened has shown nothing."""
    return Finding(what, f"{value:,}", f"at least {limit:,}", value >= limit)


def say(text: str) -> None:
    """A line of progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def table(drills: list[tuple[str, Callable[[], list[Finding]]]]) -> bool:
    """Runs the drills, prints a table of what they found, and says whether all is good."""
    rows, good = [["drill", "figure", "found", "limit", ""]], True
    for name, drill in drills:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            findings = drill()
        except Exception as failure:
            findings = [Finding("the drill itself", f"{type(failure).__name__}: {failure}", "no error", False)]
        for finding in findings:
            rows.append([name, finding.what, finding.found, finding.limit, "" if finding.good else "FAILED"])
            name = ""
        good &= all(finding.good for finding in findings)
    # Long texts, such as errors, come below the table.
    notes = [f"{what}: {found}" for _, what, found, _, _ in rows if len(found) > WIDEST]
    print(aligned([[name, what, found if len(found) <= WIDEST else "see below", *rest] for name, what, found, *rest in rows]))
    print(*notes, sep="\n")
    return good
