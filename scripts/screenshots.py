"""Takes pictures of a Prometheus's own pages in a real browser, a Chromium without a window: for docs/metrics.md."""

import os
import shutil
import subprocess
import tempfile
import urllib.parse
from pathlib import Path

from drills.parts import NotAvailable, Prometheus

# Both draw several lines, so that a picture of no data is noticed.
QUERIES = [
    'sum by (__name__) ({__name__=~"stateful_sequences_.+_total"})',
    "sum by (reason) (rate(stateful_sequences_rejected_total[10s]))",
]
ALERTS, GRAPH = "prometheus-alerts.png", "prometheus-graph.png"


def check_programs() -> None:
    """Raises NotAvailable if a program is missing. Unpacked to build, as parts.prometheus does, a Prometheus of Debian does not
    find its pages, which it has in /usr/share."""
    missing = [program for program in ("chromium", "prometheus") if shutil.which(program) is None]
    if missing:
        raise NotAvailable(f"pictures need {' and '.join(missing)}: apt-get install {' '.join(missing)}")


def take(prometheus: Prometheus, folder: Path, seconds: float) -> None:
    """Writes a picture of the alerts, and one of the last seconds of QUERIES, to a folder."""
    graphs = {
        f"g{number}.{name}": value
        for number, query in enumerate(QUERIES)
        for name, value in (("expr", query), ("tab", "0"), ("range_input", f"{seconds:g}s"))
    }
    _picture(f"http://{prometheus.address}/classic/alerts", folder / ALERTS, height=735)
    _picture(f"http://{prometheus.address}/classic/graph?{urllib.parse.urlencode(graphs)}", folder / GRAPH, height=1640)


def _picture(url: str, file: Path, height: int) -> None:
    with tempfile.TemporaryDirectory() as profile:
        command = [
            "chromium", "--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size=1000,{height}",
            "--virtual-time-budget=10000",  # the pages' scripts ask for data, and draw it
            f"--screenshot={file}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium refuses to be run by root otherwise
            url,
        ]  # fmt: skip
        file.unlink(missing_ok=True)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if not file.exists():
        raise NotAvailable(f"chromium made no picture of {url}: {done.stderr[-2000:]}")
