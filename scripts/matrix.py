"""Runs the library in the older tritonservers of PyPI: go run build.go matrix.

Each server is installed once, to build/matrix. For each, the smoke test's models are served, a choice of the end-to-end
tests runs, and the functions are listed that the server lacks. docs/compatibility.md has the results.
"""

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import tritonserver
from smoke import table, test_model
from smokemodels import MODELS
from tritonserver import ROOT, ServerError, TritonServer

FOLDER = ROOT / "build" / "matrix"
# The wheel of nvidia-pytriton with the last release of each server version that is tried.
WHEELS = ["0.1.4", "0.2.5", "0.3.1", "0.4.2", "0.5.0", "0.5.5", "0.5.10", "0.6.0"]
# By test file: what a server must have for it, besides what the library needs.
TESTS = {
    "test_lifecycle": "",
    "test_schedulers": "",
    "test_state_updates": "",
    "test_initial_states": "",
    "test_dtypes": "",
    "test_streaming_models": "",
    "test_install": "",
    "test_free": "TRITONBACKEND_RequestParameter",
    "test_saved_states": "TRITONBACKEND_RequestParameter",
    "test_metrics": "TRITONSERVER_MetricObserve",
}
# By test: from which server version on it can pass.
LATER = {
    "test_free.py::test_priorities": (2, 36),  # before, priorities of requests could not be unsigned, as clients send them
}
# Prints the version of the API and the functions that a libtritonserver lacks.
ABI = """
import ctypes, sys
library, major, minor = ctypes.CDLL(sys.argv[1]), ctypes.c_uint32(), ctypes.c_uint32()
library.TRITONBACKEND_ApiVersion(ctypes.byref(major), ctypes.byref(minor))
print(f"{major.value}.{minor.value}", *(name for name in sys.argv[2:] if not hasattr(library, name)))
"""


@dataclass
class Server:
    """A tritonserver of a wheel, and what came of it."""

    wheel: str
    version: str = "?"
    api: str = "?"
    lacks: list[str] = field(default_factory=list)
    smoke: str = "not run"
    tests: str = "not run"

    @property
    def folder(self) -> Path:
        return FOLDER / self.wheel

    @property
    def binary(self) -> Path:
        return self.folder / "pytriton" / "tritonserver" / "bin" / "tritonserver"

    @property
    def passed(self) -> bool:
        return self.smoke == "ok" and "failed" not in self.tests and "error" not in self.tests

    def row(self) -> list[str]:
        return [self.version, self.wheel, self.api, self.smoke, self.tests]


def install(server: Server) -> None:
    """Installs the wheel without what it depends on."""
    if server.binary.exists():
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, f"--target={server.folder}", f"nvidia-pytriton=={server.wheel}"], check=True)


def read_abi(server: Server) -> None:
    """Finds the server's API, and which functions of capi/table.h it lacks."""
    (library,) = (server.folder / "nvidia_pytriton.libs").glob("libtritonserver-*.so")
    used = re.findall(r"(?:REQUIRED|OPTIONAL)\((TRITON\w+)\)", (ROOT / "capi" / "table.h").read_text())
    env = os.environ | {"LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([sys.executable, "-c", ABI, library, *used], env=env, capture_output=True, text=True, check=True)
    server.api, *server.lacks = done.stdout.split()


def run_smoke(server: Server) -> None:
    """Streams sequences to the example models, as scripts/test.py does."""
    try:
        with TritonServer() as running, contextlib.redirect_stdout(io.StringIO()):
            server.version = running.request("v2")["version"]
            results = [result for name in MODELS for result in test_model(running, name, sequences=32, steps=10)]
    except ServerError as failure:
        print(failure)
        server.smoke = "does not start"
        return
    mistakes = [mistake for result in results for mistake in result.mistakes]
    print("\n".join(mistakes))
    server.smoke = "FAILED" if mistakes else "ok"


def run_tests(server: Server) -> None:
    """Runs the end-to-end tests that the server has everything for."""
    files = [f"scripts/e2e/{name}.py" for name, needs in TESTS.items() if needs not in server.lacks]
    version = tuple(map(int, server.version.split(".")))
    without = [f"--deselect={test}" for test, since in LATER.items() if version < since]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *without, *files], cwd=ROOT, capture_output=True, text=True)
    server.tests = re.sub(r" in .*", "", done.stdout.strip().splitlines()[-1])
    if done.returncode != 0:
        # The log of a server can be longer than all that is shown: what was expected comes first.
        print(*re.findall(r"^E .*", done.stdout, re.MULTILINE), done.stdout[-5000:], sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="go run build.go matrix", description=__doc__)
    parser.add_argument("--wheel", action="append", choices=WHEELS, help="only this one; may be given several times")
    tritonserver.exit_on_sigterm()
    servers = [Server(wheel) for wheel in parser.parse_args().wheel or WHEELS]
    for server in servers:
        install(server)
        read_abi(server)
        os.environ["TRITONSERVER"] = str(server.binary)
        run_smoke(server)
        if server.smoke == "ok":
            run_tests(server)
        print(
            f"{server.version} lacks {', '.join(server.lacks) or 'nothing'}: smoke test {server.smoke}, {server.tests}",
            flush=True,
        )
    print("\n" + table([["server", "wheel", "API", "smoke test", "end-to-end tests"], *(each.row() for each in servers)]))
    passed = all(server.passed for server in servers)
    print("\nPASSED" if passed else "\nFAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
