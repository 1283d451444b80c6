"""The results of scripts/bench.py as a table and as a picture."""

import statistics
from collections.abc import Callable
from pathlib import Path

Samples = dict[tuple[int, str], list[dict]]  # results by sequences and contender


def cpu_per_request(result: dict) -> float:
    return result["cpu_us_per_request"]


# The columns of the table: title, format, and where the figure is in a result.
COLUMNS: list[tuple[str, str, Callable[[dict], float]]] = [
    ("requests/s", ",.0f", lambda r: r["requests_per_second"]),
    ("p50 µs", ",.0f", lambda r: r["p50_us"]),
    ("p99 µs", ",.0f", lambda r: r["p99_us"]),
    ("mean batch", ".1f", lambda r: r["mean_batch"]),
    ("CPU µs/request", ".1f", cpu_per_request),
    ("RSS MiB", ".0f", lambda r: r["rss_bytes"] / 2**20),
]


def table(samples: Samples) -> str:
    """The medians of all rounds, one row per number of sequences and contender."""
    bases = [base for base in ("floor", "implicit", "minimal", "ort") if any(name == base for _, name in samples)]
    rows = [["sequences", "backend", *(title for title, _, _ in COLUMNS), *(f"CPU / {base}" for base in bases)]]
    for (sequences, name), results in samples.items():
        medians = [format(statistics.median(map(figure, results)), style) for _, style, figure in COLUMNS]
        rows.append([str(sequences), name, *medians, *(cpu_over(samples, sequences, name, base) for base in bases)])
    return aligned(rows)


def aligned(rows: list[list[str]]) -> str:
    """Rows as text, in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def cpu_over(samples: Samples, sequences: int, name: str, base: str) -> str:
    """The median of the rounds' ratios of CPU time per request to that of another contender, with the same allocator."""
    backend, plus, allocator = name.partition("+")
    others = samples.get((sequences, base + plus + allocator), [])
    if backend in ("nothing", "floor", base) or not others:
        return "-"
    ratios = [cpu_per_request(a) / cpu_per_request(b) for a, b in zip(samples[sequences, name], others)]
    return format(statistics.median(ratios), ".2f")


COLORS = {"floor": "#9aa5b1", "stateful": "#1f77b4", "python": "#d9822b"}


def plot(results: dict[str, Samples], path: Path) -> None:
    """Draws the server's CPU time per request: a panel for each model, a group of bars for each number of sequences."""
    import matplotlib.pyplot as plt  # only here: it is large, and not among the pinned packages

    figure, panels = plt.subplots(1, len(results), figsize=(4 * len(results), 3), squeeze=False)
    for panel, (model, samples) in zip(panels[0], results.items()):
        counts = list(dict.fromkeys(sequences for sequences, _ in samples))
        for number, (name, color) in enumerate(COLORS.items()):
            values = [statistics.median(map(cpu_per_request, samples.get((count, name), [{"cpu_us_per_request": 0}])))
                      for count in counts]  # fmt: skip
            bars = panel.bar([at + 0.28 * number for at in range(len(counts))], values, 0.26, color=color, label=name)
            panel.bar_label(bars, fmt="%.0f", fontsize=7)
        panel.margins(y=0.2)
        panel.set(title=model, xticks=[at + 0.28 for at in range(len(counts))], xticklabels=counts, xlabel="sequences")
    panels[0][0].set_ylabel("server CPU time, µs/request")
    panels[0][0].legend(loc="upper center", ncols=3, fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
