"""Runs the tests that docs/reliability.md names and writes into the page what came of it.

Each row of its tables of promises gets the figures of its tests: how many cases passed, in what time; the inputs of a
fuzz target; the time of a benchmark's parts. A test that fails ends it, and the page stays as it was. Run it after
go run build.go test, which builds what some of the tests need; it takes some minutes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reliability.md"
HEADER = "| Promise | Proved by | Last run |"
FOLDERS = {"tensor": "internal/tensor", "onnxfile": "internal/onnxfile"}  # of packages that do not lie at the top
# In fuzz.go: module, folder, name and how many inputs.
FUZZ_TARGETS = re.compile(r'\{"(\S+)", "(\S+)", "(Fuzz\w+)", ([\d_]+)\}')

GO_TEST = re.compile(r"`([a-z]+)\.((?:Test|Fuzz|Benchmark)\w+)`")
PYTHON_TEST = re.compile(r"`(scripts/\S+\.py)::(test_\w+)`")


@dataclass
class Figures:
    """What came of a test."""

    cases: int = 0
    seconds: float = 0
    words: str = ""  # instead of cases and time

    @classmethod
    def sum(cls, all_of: list["Figures"]) -> str:
        counted = [f for f in all_of if not f.words]
        cases, seconds = sum(f.cases for f in counted), sum(f.seconds for f in counted)
        texts = [f"{cases} {'case' if cases == 1 else 'cases'}, {seconds:.1f} s"] if counted else []
        return "; ".join(texts + [f.words for f in all_of if f.words])


def environment() -> dict[str, str]:
    """What go test needs to find the libraries of the build."""
    triton = next((ROOT / "build" / "venv").glob("lib/python3*/site-packages/nvidia_pytriton.libs"))
    ort = ROOT / "build" / "install" / "backends" / "stateful" / "libonnxruntime_stateful.so"
    return os.environ | {"STATEFUL_ORT_LIB": str(ort), "STATEFUL_TRITON_LIB_DIR": str(triton)}


def run(command: list[str]) -> str:
    print("+", *command, flush=True)
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-4000:]}\npromises: the tests failed; the page stays as it was")
    return done.stdout


def go_tests(package: str, names: list[str]) -> dict[str, Figures]:
    """The tests of a package. Those without parts are one case."""
    output = run(["go", "test", "-tags", "testhooks", "-count=1", "-json", "-run", f"^({'|'.join(names)})$", "./" + FOLDERS.get(package, package)])
    figures: dict[str, Figures] = defaultdict(Figures)
    for line in output.splitlines():
        event = json.loads(line)
        if event["Action"] != "pass" or "Test" not in event:
            continue
        name, *part = event["Test"].split("/")
        figures[name].cases += bool(part)
        if not part:
            figures[name].seconds = event["Elapsed"]
            figures[name].cases = max(1, figures[name].cases)
    return figures


def fuzz_targets() -> dict[str, tuple[str, str, int]]:
    """What go run build.go test fuzzes: module, folder and number of inputs, by "package.FuzzName"."""
    source = (ROOT / "internal" / "build" / "fuzz.go").read_text()
    return {
        f"{Path(folder).name}.{name}": (module, folder, int(inputs))
        for module, folder, name, inputs in FUZZ_TARGETS.findall(source)
    }


def fuzz(target: str) -> Figures:
    """A fuzz target, fed with inputs that nobody thought of."""
    module, folder, inputs = fuzz_targets()[target]
    name = target.split(".")[1]
    run(["go", "-C", module, "test", folder, "-run", "^$", "-fuzz", f"^{name}$", "-fuzztime", f"{inputs}x",
         "-fuzzminimizetime", "100x"])  # fmt: skip
    return Figures(words=f"{name.removeprefix('Fuzz')} {inputs:,} inputs")


def benchmark(package: str, name: str) -> Figures:
    """A benchmark with parts: the time of each, best of 5."""
    output = run(["go", "test", "-tags", "testhooks", "-run", "^$", "-bench", f"^{name}$", "-count=5", "./" + package])
    times: dict[str, float] = {}
    for part, ns in re.findall(rf"^{name}/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op", output, re.MULTILINE):
        times[part] = min(float(ns), times.get(part, float(ns)))
    return Figures(words=f"{name.removeprefix('Benchmark')} " + ", ".join(f"{part} {ns:.0f} ns" for part, ns in times.items()))


def python_tests(tests: list[tuple[str, str]]) -> dict[str, Figures]:
    """Tests of pytest, by file and function."""
    figures: dict[str, Figures] = defaultdict(Figures)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        run([sys.executable, "-B", "-m", "pytest", "-q", f"--junitxml={report}", *(f"{file}::{name}" for file, name in tests)])
        for case in xml.parse(report).iter("testcase"):
            name = f"{case.get('classname').split('.')[-1]}::{case.get('name').split('[')[0]}"
            figures[name].cases += 1
            figures[name].seconds += float(case.get("time"))
    return figures


def measure(page: str) -> dict[str, Figures]:
    """The figures of every test that the page names, by its name there."""
    figures: dict[str, Figures] = {}
    packages: dict[str, list[str]] = defaultdict(list)
    for package, name in sorted(set(GO_TEST.findall(page))):
        if name.startswith("Fuzz"):
            figures[f"{package}.{name}"] = fuzz(f"{package}.{name}")
        elif name.startswith("Benchmark"):
            figures[f"{package}.{name}"] = benchmark(package, name)
        else:
            packages[package].append(name)
    for package, names in packages.items():
        figures |= {f"{package}.{name}": each for name, each in go_tests(package, names).items()}
    return figures | python_tests(sorted(set(PYTHON_TEST.findall(page))))


def filled(page: str, figures: dict[str, Figures]) -> str:
    """The page, with the last column of its tables of promises anew."""
    lines, inside = page.splitlines(), False
    for i, line in enumerate(lines):
        inside = line == HEADER or inside and line.startswith("|")
        if not inside or line == HEADER or line.startswith("|---"):
            continue
        promise, proof = line.strip("|").split("|")[:2]
        names = [f"{package}.{name}" for package, name in GO_TEST.findall(proof)]
        names += [f"{Path(file).stem}::{name}" for file, name in PYTHON_TEST.findall(proof)]
        if names:
            lines[i] = f"|{promise}|{proof}| {Figures.sum([figures[name] for name in names])} |"
    return "\n".join(lines) + "\n"


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    page = PAGE.read_text()
    PAGE.write_text(filled(page, measure(page)))
    print(f"{PAGE} has the figures of this run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
