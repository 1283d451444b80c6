"""The ONNX files of the example models. What they compute is tested in a server: test_examples.py."""

from pathlib import Path

import onnx
import pytest

import generate
from tritonserver import MODELS

ALL = generate.EXAMPLES | generate.STREAMING


@pytest.mark.parametrize("name", generate.EXAMPLES)
def test_old_enough_for_every_runtime(name):
    model = onnx.load(MODELS / name / "1" / "model.onnx")
    assert model.ir_version == 7
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 11)]


@pytest.mark.parametrize("example", ALL.values(), ids=lambda example: example.name)
def test_made_the_same_every_time(example, tmp_path):
    made = generate.write(example, tmp_path)
    assert made.read_bytes() == (MODELS / made.relative_to(tmp_path)).read_bytes()


def test_every_configuration_has_its_model():
    assert {path.parent.name for path in Path(MODELS).glob("*/config.pbtxt")} == {*ALL, *generate.ENSEMBLES}
