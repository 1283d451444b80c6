"""Smoke test: sequences keep their states in our backend, inside a real tritonserver.

Builds what has to be built, starts a server on free ports with the example models, streams interleaved sequences to
each of them with the official client, and compares every answer with numbers computed in numpy. Needs Go, gcc and
Python 3 alone; everything else is fetched and built by itself.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from smokemodels import MODELS
from tritonserver import TritonServer

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "build" / "venv" / "bin" / "python"
REMEDY = "leave out --no-build, or run go run build.go"


def main() -> int:
    options = parse_options()
    if options.build:
        build()
    if options.build or Path(sys.executable).parent.resolve() != PYTHON.parent.resolve():
        run_in_environment()
    try:
        from smoke import run  # needs the packages of that environment
    except ModuleNotFoundError as missing:
        sys.exit(f"test.py: build/venv has no {missing.name}, its build was not finished: {REMEDY}")

    return run(TritonServer(), options.model or MODELS, options.sequences, options.steps, options.keep_serving)


def run_in_environment() -> NoReturn:
    """Starts again with the packages of the environment that was built; this Python need not have them."""
    if not PYTHON.exists():
        sys.exit(f"test.py: nothing was built yet, there is no build/venv/bin/python: {REMEDY}")
    os.execv(PYTHON, [str(PYTHON), str(Path(__file__).resolve()), *sys.argv[1:], "--no-build"])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", action="append", choices=MODELS, help="test only this model; may be given several times")
    add("--sequences", type=positive, default=32, metavar="N", help="sequences at the same time (default: 32)")
    add("--steps", type=positive, default=10, metavar="N", help="requests of a sequence (default: 10)")
    add("--keep-serving", action="store_true", help="keep the server after the test, until Ctrl-C")
    add("--no-build", dest="build", action="store_false", help="test what was built before")
    return parser.parse_args()


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def build() -> None:
    if shutil.which("go") is None:
        sys.exit("test.py: go is not installed: install Go 1.26 or newer and put it on the PATH")
    if subprocess.run(["go", "run", "build.go"], cwd=ROOT).returncode != 0:
        sys.exit("test.py: the build failed, see above")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("test.py: interrupted")
