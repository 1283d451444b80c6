"""go run build.go bench: every way to measure runs and prints its table. The figures do not matter here."""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

import benchcontenders
import benchload
import benchweights
from batchfirst import batch_first
from benchbuild import SOURCE
from generate_streaming import conformer_like
from tritonserver import BACKENDS, ROOT

SHORT = ["--rounds", "1", "--seconds", "0.2", "--warmup", "0.1"]


def bench(*options: str | Path) -> list[list[str]]:
    """What scripts/bench.py prints, as words of lines. It may say that a target is missed, but no request may fail."""
    command = [sys.executable, ROOT / "scripts" / "bench.py", *SHORT, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    assert "errors" not in done.stdout and "requests failed" not in done.stdout, done.stdout
    return [line.split() for line in done.stdout.splitlines()]


def rows(lines: list[list[str]], first: str) -> list[str]:
    """The backends of the rows that begin with a word."""
    return [words[1] for words in lines if words and words[0] == first]


def test_backends_in_turns(tmp_path):
    """Two instances. Our library is a fake of Triton's ONNX Runtime backend, whose configurations it understands."""
    for file in (BACKENDS / "stateful").iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "libtriton_onnxruntime.so").symlink_to("libtriton_stateful.so")
    names = ["stateful", "implicit", "minimal", "nothing", "floor"]
    lines = bench("--model", "accumulate_fp32", "--sequences", "4", "--instances", "2", "--contenders", *names,
                  "--ort-backend", tmp_path)  # fmt: skip
    assert rows(lines, "4") == [*names, "ort"]


def test_arrivals():
    lines = bench("--open", "--model", "accumulate_fp32", "--sequences", "8", "--percent", "5", "80")
    table = [words for words in lines if words[1:2] == ["%"]]
    assert [words[2] for words in table] == ["stateful", "nothing", "floor", "nothing"] * 2  # nothing + run
    assert any(words[:1] == ["capacity,"] for words in lines) and any(
        words[1:5] == ["%:", "one", "run", "takes"] for words in lines
    )


def test_schedulers():
    """A table to paste, with a column for each and a row for each figure."""
    lines = bench("--schedulers", "--sequences", "4")
    head = next(words for words in lines if words[:2] == ["|", "|"])
    assert " ".join(head) == "| | oldest | direct | free | free, 2 instances | nothing | nothing, 2 instances |"
    assert sum("4" in words and words[0] == "|" for words in lines) == 6
    assert any(words[:4] == ["4", "sequences,", "CPU", "time"] for words in lines)


def test_idle_sequences(tmp_path):
    lines = bench("--idle", "--model", "accumulate_fp32", "--live", "200", "--sequences", "4", "--json", tmp_path / "all.json")
    assert rows(lines, "200") == ["stateful", "nothing"]
    assert [words[0] for words in lines if words[1:3] == ["one", "more"] and "FAILED:" not in words] == ["stateful:", "nothing:"]
    assert (tmp_path / "all.json").read_text().count("idle_bytes") == 2


def test_loading(tmp_path, monkeypatch, capsys):
    """With a small model."""
    monkeypatch.setattr(benchweights, "LAYERS", 1)
    assert benchload.measure(tmp_path, argparse.Namespace(rounds=1, json=None)) in (0, 1)
    printed = capsys.readouterr().out
    assert all(f"{name} " in printed for name in (benchload.FIRST, benchload.LOAD, benchload.UNPROVED, benchload.SESSION))


def test_without_tcmalloc(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(benchcontenders.ctypes.util, "find_library", lambda name: None)
    assert benchcontenders.find_tcmalloc("") == ""
    assert "there is no tcmalloc on this machine" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="there is no such file"):
        benchcontenders.find_tcmalloc(str(tmp_path / "libtcmalloc.so"))


def silero() -> ModelProto:
    sys.path.append(str(SOURCE / "models"))
    from models import silero_vad

    return silero_vad()[1]


@pytest.mark.parametrize("make", [pytest.param(lambda: conformer_like().model(), id="conformer"), silero])
def test_batch_first_changes_only_the_layout(tmp_path, make):
    model = make()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    batch_first(tmp_path / "model.onnx", tmp_path / "first.onnx")
    random = np.random.default_rng(1)
    given, first_given = {}, {}
    for value in model.graph.input:
        axes = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        shape = [3 if extent == "batch" else extent for extent in axes]
        floats = value.type.tensor_type.elem_type == 1
        given[value.name] = random.standard_normal(shape).astype(np.float32) if floats else np.array([1, 2, 4])
        first_given[value.name] = np.moveaxis(given[value.name], axes.index("batch"), 0)
    want, got = (
        onnxruntime.InferenceSession(tmp_path / name).run(None, inputs)
        for name, inputs in (("model.onnx", given), ("first.onnx", first_given))
    )
    for value, expected, answer in zip(model.graph.output, want, got, strict=True):
        axes = [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        np.testing.assert_array_equal(answer, np.moveaxis(expected, axes.index("batch"), 0))
