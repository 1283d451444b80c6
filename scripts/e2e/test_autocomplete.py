"""What a configuration leaves out is filled in from the model file, and Triton's configuration endpoint shows it."""

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient, model_config_pb2

from conftest import Folder
from graphs import model, op, running_sum, tensor
from sequences import Reference, check
from tritonserver import MODELS as EXAMPLES
from tritonserver import ServerError, TritonServer
from unary import infer

F32 = np.float32
STATES = {"s": "s_out"}

# The examples whose dims are written as Triton's are, without the batch; the others are NVIDIA's.
IN_TRITONS_WORDS = ["conformer_like", "implicit_state", "kv_decoder", "streaming_lstm"]


def recurrent() -> ModelProto:
    """A state with the batch inside, and an input and an output with only the batch axis."""
    return model(
        op("Unsqueeze", "x front -> one"),
        op("Add", "s one -> s_out"),
        op("ReduceSum", "s_out front -> y", keepdims=0),
        op("Identity", "n -> m"),
        inputs=[tensor("x", F32, "batch", 3), tensor("n", np.int64, "batch"), tensor("s", F32, 2, "batch", 3)],
        outputs=[tensor("y", F32, "batch", 3), tensor("m", np.int64, "batch"), tensor("s_out", F32, 2, "batch", 3)],
        constants={"front": np.array([0])},
    )


def scaled() -> ModelProto:
    """s' = s + x * gain, without a batch; the gain is a scalar."""
    return running_sum(1, 3, nodes=[op("Mul", "x gain -> more")], term="more", inputs=[tensor("gain", F32)])


def double() -> ModelProto:
    """y = x + x, and no state."""
    return model(op("Add", "x x -> y"), inputs=[tensor("x", F32, "batch", 3)], outputs=[tensor("y", F32, "batch", 3)])


def example(name: str) -> str:
    """The example's configuration without all that can be filled in."""
    config = text_format.Parse((EXAMPLES / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    for part in ("input", "output", "max_batch_size"):
        config.ClearField(part)
    return text_format.MessageToString(config)


def initial_state(name: str) -> dict[str, bytes]:
    return {f"initial_state/{path.name}": path.read_bytes() for path in (EXAMPLES / name).glob("initial_state/*")}


THREE_LINES = 'name: "three_lines"\nbackend: "stateful"\nsequence_batching { oldest { max_candidate_sequences: 128 } }\n'

MODELS = {
    "three_lines": Folder(THREE_LINES, recurrent),
    "direct": Folder('backend: "stateful"\nsequence_batching { }\n', recurrent),
    "backend_only": Folder('backend: "stateful"\n', recurrent),
    "scalar": Folder('backend: "stateful"\nsequence_batching { oldest { } }\n', scaled),
    "scalar_alone": Folder('backend: "stateful"\n', scaled),
    "nothing.stateful": Folder(None, None, {"1/model.stateful": recurrent().SerializeToString()}),
    "stateless": Folder('backend: "stateful"\n', double),
    "unbatched": Folder('backend: "stateful"\nsequence_batching { oldest { } }\n', running_sum(1, 3)),
    "small_batch": Folder('backend: "stateful"\nmax_batch_size: 5\nsequence_batching { oldest { } }\n', recurrent),
    **{
        f"bare_{name}": Folder(
            example(name).replace(f'name: "{name}"', ""),
            onnx.load(EXAMPLES / name / "1" / "model.onnx"),
            initial_state(name),
        )
        for name in IN_TRITONS_WORDS
    },
}

# In both ways of Triton to write a shape: what an input or output has in addition to its default.
X = {"name": "x", "data_type": "TYPE_FP32", "dims": [3]}
Y = X | {"name": "y"}
N = {"name": "n", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}
M = N | {"name": "m"}


def config(server: TritonServer, name: str) -> dict:
    return server.request(f"v2/models/{name}/config")


def tensors(config: dict, part: str) -> list[dict]:
    """The inputs or outputs, as far as they are not Triton's defaults."""
    wanted = ("name", "data_type", "dims", "reshape")
    return [{key: each[key] for key in wanted if key in each} for each in config[part]]


def check_recurrent(client: InferenceServerClient, name: str, *, batched: bool = False) -> None:
    random = np.random.default_rng(7)
    steps = [[{"x": random.standard_normal((1, 3)).astype(F32), "n": np.array([[step]])} for step in range(4)] for _ in range(3)]
    reference = Reference(recurrent(), STATES)
    check(client, name, reference, steps, batched=batched, tolerance=1e-6)


@pytest.mark.parametrize("name", ["three_lines", "direct", "backend_only", "nothing.stateful", "small_batch"])
def test_inputs_outputs_and_batch(own_server, own_client, name):
    filled = config(own_server, name)
    assert tensors(filled, "input") == [X, N]
    assert tensors(filled, "output") == [Y, M]
    assert filled["max_batch_size"] == (5 if name == "small_batch" else 64)
    check_recurrent(own_client, name)


@pytest.mark.parametrize("name", ["backend_only", "nothing.stateful"])
def test_sequence_batching(own_server, name):
    filled = config(own_server, name)["sequence_batching"]
    assert filled["oldest"]["max_candidate_sequences"] == 256
    states = [{key: state[key] for key in ("input_name", "output_name", "data_type", "dims")} for state in filled["state"]]
    assert states == [{"input_name": "s", "output_name": "s_out", "data_type": "TYPE_FP32", "dims": [2, 3]}]


@pytest.mark.parametrize("name", ["scalar", "scalar_alone"])
def test_scalar_without_a_batch(own_server, own_client, name):
    """Triton refuses a scalar where max_batch_size is 0."""
    assert config(own_server, name)["max_batch_size"] == 1
    for step in range(3):
        inputs = {"x": np.ones((1, 1, 3), F32), "gain": np.full((1, 1), 2, F32)}
        answer = infer(own_client, name, 3, inputs, start=step == 0, end=step == 2)
        np.testing.assert_array_equal(answer["y"].ravel(), np.full(3, 2 * (step + 1), F32))


def test_a_scheduler_that_was_chosen_stays(own_server):
    assert config(own_server, "three_lines")["sequence_batching"]["oldest"]["max_candidate_sequences"] == 128
    assert config(own_server, "three_lines")["sequence_batching"]["state"] == []  # Triton changes nothing in it
    assert "oldest" not in config(own_server, "direct")["sequence_batching"]


def test_no_configuration_at_all(own_server):
    filled = config(own_server, "nothing.stateful")
    assert filled["backend"] == "stateful"
    assert filled["default_model_filename"] == "model.stateful"


def test_stateless(own_server, own_client):
    """As Triton's backend for ONNX Runtime does it: a batch of 4, and batches are formed."""
    filled = config(own_server, "stateless")
    assert (tensors(filled, "input"), tensors(filled, "output")) == ([X], [Y])
    assert filled["max_batch_size"] == 4
    assert "dynamic_batching" in filled and "sequence_batching" not in filled
    x = np.arange(12, dtype=F32).reshape(4, 3)
    np.testing.assert_array_equal(infer(own_client, "stateless", 0, {"x": x})["y"], 2 * x)


def test_unbatched(own_server, own_client):
    """No axis of the model is the batch: dims are all of its axes."""
    filled = config(own_server, "unbatched")
    assert filled["max_batch_size"] == 0
    assert (tensors(filled, "input"), tensors(filled, "output")) == ([X | {"dims": [1, 3]}], [Y | {"dims": [1, 3]}])
    assert 'max_batch_size stays 0: \\"y\\" [1,3]' in own_server.log_text()
    ones = np.ones((1, 3), F32)
    for step in (1, 2, 3):
        answer = infer(own_client, "unbatched", 9, {"x": ones}, start=step == 1)
        np.testing.assert_array_equal(answer["y"], step * ones)


@pytest.mark.parametrize("name", IN_TRITONS_WORDS)
def test_the_same_as_written_by_hand(own_server, server, name):
    written, filled = config(server, name), config(own_server, f"bare_{name}")
    for part in ("input", "output"):
        by_name = {each["name"]: each for each in tensors(filled, part)}
        for each in tensors(written, part):
            assert by_name.pop(each["name"]) == each
        assert not by_name or part == "output"  # by hand, an output can be left out
    assert filled["max_batch_size"] == 64


def test_default_max_batch_size(serve):
    models = {"stateful": MODELS["three_lines"], "stateless": MODELS["stateless"]}
    models["stateful"] = Folder(THREE_LINES.replace("three_lines", "stateful"), recurrent)
    server = serve(models, options=["--backend-config=default-max-batch-size=16"])
    assert [config(server, name)["max_batch_size"] for name in models] == [16, 16]


def test_switched_off(serve):
    """With --disable-auto-complete-config, what is missing is an error."""
    server = serve({"three_lines": MODELS["three_lines"]}, explicit=True, options=["--disable-auto-complete-config"])
    with pytest.raises(ServerError, match='input "x" .* has no source'):
        server.load("three_lines")


def test_a_missing_model_file(refusal):
    message = refusal("empty", Folder('backend: "stateful"\nsequence_batching { }\n'))
    assert "opening the model" in message
    assert "model.onnx" in message


def test_all_faults_at_once(refusal):
    """Also where inputs and outputs are filled in: parameters that are not understood do not hide the others."""
    parameters = {"intra_op_threads": "many", "batch_axes": "nothing = 0", "initial_states": "nobody = 1"}
    lines = "".join(f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n' for name, value in parameters.items())
    message = refusal("faults", Folder(f'backend: "stateful"\nsequence_batching {{ }}\n{lines}', recurrent))
    for word in ('parameter intra_op_threads is "many"', '"nothing"', '"nobody"'):
        assert word in message
