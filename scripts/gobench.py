"""The Go benchmarks that scripts/bench.py runs: the step against ONNX Runtime alone, and the parts of a step."""

import ctypes
import os
import subprocess
from pathlib import Path

PR_SET_TIMERSLACK = 29
SLACK_NS = 20_000_000


def step(root: Path, backends: Path, models: Path) -> int:
    """Runs BenchmarkStep of capi on the benchmark's models, with the timer slack that Go's sysmon has in a server: processes
    that we start inherit it. See docs/RATIONALE.md."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, SLACK_NS)
    environment = {
        "STATEFUL_ORT_LIB": str(backends / "stateful" / "libonnxruntime_stateful.so"),
        "STATEFUL_BENCH_MODELS": str(models),
    }
    light = go_test(root, "./capi", "Step/(accumulate|lstm|kv)", "200x", environment)
    heavy = go_test(root, "./capi", "Step/zip", "12x", environment)
    return light or heavy


def micro(root: Path, backends: Path, models: Path) -> int:
    """Runs the benchmarks of the packages that a step goes through."""
    environment = {"STATEFUL_ORT_LIB": str(backends / "stateful" / "libonnxruntime_stateful.so")}
    codes = [
        go_test(root, "./statebuffer", ".", "1s", environment),
        go_test(root, "./backend", ".", "1s", environment),
        go_test(root, "./ortrunner", ".", "1s", environment),
        go_test(root, "./capi", "Seam", "1s", environment),
    ]
    return max(codes)


def go_test(root: Path, package: str, pattern: str, time: str, environment: dict[str, str]) -> int:
    command = ["go", "test", "-tags", "testhooks", "-run", "^$", "-bench", pattern, "-benchtime", time, "-benchmem", package]
    print("+", *command, flush=True)
    return subprocess.run(command, cwd=root, env=os.environ | environment).returncode
