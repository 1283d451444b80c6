"""The ONNX files of the example models on plain ONNX Runtime: what they compute, and what they need."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

import accumulate
import generate
from streaming import Model
from tritonserver import MODELS

SEQUENCES, STEPS = 5, 12
ALL = generate.EXAMPLES | generate.STREAMING


class Session:
    """A model whose sequences all take their steps together, one lane each; states are kept here."""

    def __init__(self, name: str):
        path = MODELS / name / "1" / "model.onnx"
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.states = {}  # by the name of the state's input, [lanes, features]

    def step(self, inputs: dict[str, np.ndarray], start: bool) -> dict[str, np.ndarray]:
        lanes = next(iter(inputs.values())).shape[1]
        feeds = dict(inputs)
        for tensor in self.session.get_inputs():
            if tensor.name == "ResetSequence":
                feeds[tensor.name] = np.full((lanes, 1), start)
            elif tensor.name not in inputs:
                feeds[tensor.name] = garbage(tensor, lanes) if start else self.states[tensor.name]
        names = [tensor.name for tensor in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, feeds)))
        self.states = {
            name.replace("Accumulate_Out", "Accumulate_In"): value
            for name, value in outputs.items()
            if name.startswith("Accumulate_Out")
        }
        return outputs


def garbage(tensor, lanes: int) -> np.ndarray:
    """A state that must not be seen: NaN, or the largest integer."""
    dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}[tensor.type]
    worst = np.nan if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max
    return np.full((lanes, tensor.shape[1]), worst, dtype)


def configuration(name: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse((MODELS / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def check(name: str, sequences: list[accumulate.Sequence]) -> None:
    """Runs the sequences together and compares every lane."""
    session = Session(name)
    steps = [[r for r in sequence.requests if r.expected] for sequence in sequences]
    for requests in zip(*steps, strict=True):
        # A request is [1, rows, 1, features]: one lane of the model's [rows, lanes, features].
        inputs = {n: np.concatenate([r.inputs[n][0] for r in requests], axis=1) for n in requests[0].inputs}
        outputs = session.step(inputs, start=requests[0].start)
        for output in requests[0].expected:
            want = np.concatenate([r.expected[output] for r in requests], axis=1)
            assert outputs[output].dtype == want.dtype
            np.testing.assert_array_equal(outputs[output], want)


@pytest.mark.parametrize("name", ["accumulate_fp32", "accumulate_int32"])
def test_known_answers(name):
    check(name, accumulate.known_sequences(Model.of(name, configuration(name))))


@pytest.mark.parametrize("name", generate.EXAMPLES)
def test_random_sequences(name):
    check(name, accumulate.random_sequences(Model.of(name, configuration(name)), SEQUENCES, STEPS))


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
