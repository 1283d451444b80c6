"""The results of scripts/bench.py as a table and as a plot."""

import statistics
from collections.abc import Callable, Iterator
from html import escape

Samples = dict[tuple[int, str], list[dict]]  # results by sequences and contender


def cpu_per_request(result: dict) -> float:
    return result["process"]["cpu_us_per_request"]


# The columns of the table: title, format, and where the figure is in a result; raw has only some of them.
COLUMNS: list[tuple[str, str, Callable[[dict], float]]] = [
    ("requests/s", ",.0f", lambda r: r["requests_per_second"]),
    ("p50 µs", ",.0f", lambda r: r["phases"]["measure"]["latency_us"]["p50"]),
    ("p99 µs", ",.0f", lambda r: r["phases"]["measure"]["latency_us"]["p99"]),
    ("mean batch", ".1f", lambda r: r["server"]["mean_batch"]),
    ("CPU µs/request", ".1f", cpu_per_request),
    ("RSS MiB", ".0f", lambda r: r["process"]["rss_bytes"] / 2**20),
]


def table(samples: Samples) -> str:
    """The medians of all rounds, one row per number of sequences and contender."""
    rows = [["sequences", "backend", *(title for title, _, _ in COLUMNS), "CPU / (nothing + raw)", "CPU / floor"]]
    for (sequences, name), results in samples.items():
        medians = [median_text(figure, results, style) for _, style, figure in COLUMNS]
        rows.append([str(sequences), name, *medians])
        rows[-1] += [over(below, samples, sequences, name) for below in (separate, together)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def median_text(figure: Callable[[dict], float], results: list[dict], style: str) -> str:
    try:
        return format(statistics.median(map(figure, results)), style)
    except KeyError:
        return "-"


def separate(samples: Samples, sequences: int) -> list[float]:
    """What nothing and raw took, each by itself, in each round."""
    nothing, raw = (samples.get((sequences, name), []) for name in ("nothing", "raw"))
    return [cpu_per_request(a) + cpu_per_request(b) for a, b in zip(nothing, raw)]


def together(samples: Samples, sequences: int) -> list[float]:
    """What both took in one process, in each round."""
    return list(map(cpu_per_request, samples.get((sequences, "floor"), [])))


def over(floors: Callable[[Samples, int], list[float]], samples: Samples, sequences: int, name: str) -> str:
    """The median of the rounds' ratios of CPU time per request to a floor's."""
    below = floors(samples, sequences)
    if name in ("nothing", "raw", "floor") or not below:
        return "-"
    ratios = [cpu_per_request(result) / floor for result, floor in zip(samples[sequences, name], below)]
    return format(statistics.median(ratios), ".2f")


# ---- plot ----

WIDTH, BAR, GAP, LEFT, SCALE = 760, 16, 26, 210, 400
COLORS = {"nothing + raw": "#c9d0d8", "floor": "#9aa5b1", "stateful": "#1f77b4", "python": "#d9822b"}


def plot(results: dict[str, Samples]) -> str:
    """Server CPU time per request as bars: what nothing and raw take apart, and each backend that computes, with its
    ratio to the floor."""
    body, y = [], 40
    for model, samples in results.items():
        groups = list(bars(samples))
        longest = max(value for _, group in groups for _, value in group)
        body.append(text(10, y, model, weight="bold"))
        y += 12
        for sequences, group in groups:
            body.append(text(10, y + 13, f"{sequences} sequences"))
            for name, value in group:
                width = value / longest * SCALE
                body.append(text(LEFT - 8, y + 13, name, anchor="end"))
                body.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLORS[name]}"/>')
                body.append(text(LEFT + width + 6, y + 13, label(value, dict(group).get("floor"))))
                y += BAR + 3
            y += GAP - BAR
        y += GAP
    title = text(10, 18, "Server CPU time per request, µs, and over floor: a do-nothing backend that runs ONNX Runtime")
    style = 'font-family="sans-serif" font-size="12"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" {style}>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{title}\n' + "\n".join(body) + "\n</svg>\n"
    )


def bars(samples: Samples) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """For each number of sequences the medians."""
    for sequences in dict.fromkeys(sequences for sequences, _ in samples):
        group = [("nothing + raw", statistics.median(separate(samples, sequences) or [0]))]
        for name in COLORS:
            if (sequences, name) in samples:
                group.append((name, statistics.median(map(cpu_per_request, samples[sequences, name]))))
        yield sequences, group


def label(value: float, floor: float | None) -> str:
    return f"{value:.0f}" if value == floor or not floor else f"{value:.0f}  ({value / floor:.2f})"


def text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
