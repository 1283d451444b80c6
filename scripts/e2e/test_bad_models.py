"""Models that cannot be served: the load fails and says why, and what is served already goes on."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import InferenceServerClient, model_config_pb2

import generate
from conftest import Folder
from tritonserver import MODELS, ServerError, TritonServer
from unary import infer

ModelConfig = model_config_pb2.ModelConfig
Change = Callable[[ModelConfig], None]

# Every bad model is this example with one mistake in it.
BASE = "accumulate_fp32"


def config(change: Change | None = None) -> str:
    changed = text_format.Parse((MODELS / BASE / "config.pbtxt").read_text(), ModelConfig())
    if change is not None:
        change(changed)
    return text_format.MessageToString(changed)


def onnx() -> bytes:
    return generate.EXAMPLES[BASE].model().SerializeToString()


def parameter(name: str, value: str) -> Change:
    def change(config: ModelConfig) -> None:
        config.parameters[name].string_value = value

    return change


def pairs(value: str) -> Change:
    return parameter("state_pairs", value)


def field(part: str, name: str, value: object) -> Change:
    """Another value in the first input, output or instance_group."""

    def change(config: ModelConfig) -> None:
        setattr(getattr(config, part)[0], name, value)

    return change


def one_more(part: str, name: str) -> Change:
    """An input or output that the model has not."""

    def change(config: ModelConfig) -> None:
        getattr(config, part).add(name=name, data_type=model_config_pb2.TYPE_FP32, dims=[4, -1, 5])

    return change


def reset_control(name: str) -> Change:
    """The START flag goes to another tensor, or to none at all."""

    def change(config: ModelConfig) -> None:
        controls = config.sequence_batching.control_input
        reset = next(control for control in controls if control.name == "ResetSequence")
        if name:
            reset.name = name
        else:
            controls.remove(reset)

    return change


def no_sequences(config: ModelConfig) -> None:
    config.ClearField("sequence_batching")


def batch_input(config: ModelConfig) -> None:
    config.batch_input.add(
        kind=model_config_pb2.BatchInput.BATCH_ELEMENT_COUNT,
        target_name=["Count"],
        data_type=model_config_pb2.TYPE_FP32,
        source_input=["Input"],
    )


@dataclass(frozen=True)
class Mistake:
    """A model that is refused, and words of the refusal: who is to blame, and what is there or wanted instead."""

    name: str
    words: tuple[str, ...]
    change: Change | None = None
    onnx: Callable[[], bytes | None] = onnx

    def folder(self) -> Folder:
        return Folder(config(self.change), self.onnx())


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
INT32 = model_config_pb2.TYPE_INT32
KIND_GPU = model_config_pb2.ModelInstanceGroup.KIND_GPU

MISTAKES = [
    # The ONNX file.
    Mistake("no_file", ("1/model.onnx does not exist",), onnx=lambda: None),
    Mistake("empty_file", ("1/model.onnx is empty: copy it again",), onnx=lambda: b""),
    Mistake("git_lfs_pointer", ("1/model.onnx", "a Git LFS pointer", "git lfs pull"), onnx=lambda: LFS_POINTER),
    Mistake(
        "corrupt_file",
        ("1/model.onnx", "parsing failed", "it is truncated"),
        onnx=lambda: b"this is no model\n" * 100,
    ),
    Mistake("file_elsewhere", ("onnx_file_name", '"../model.onnx"'), parameter("onnx_file_name", "../model.onnx")),
    # The states.
    Mistake("pair_unclosed", ("state_pairs", "no closing >>>"), pairs("<<<Accumulate_In, Accumulate_Out")),
    Mistake("unknown_state_output", ('"Nothing"', '"Accumulate_Out"'), pairs("<<<Accumulate_In, Nothing>>>")),
    # The sequences.
    Mistake("no_reset", ('"ResetSequence"', "CONTROL_SEQUENCE_START"), reset_control("")),
    Mistake("no_sequences", ("sequence_batching",), no_sequences),
    # Inputs and outputs.
    Mistake("unknown_input", ('"Mystery"', '"Input"'), one_more("input", "Mystery")),
    Mistake("input_type", ('"Input"', "TYPE_INT32", "TYPE_FP32"), field("input", "data_type", INT32)),
    Mistake("output_type", ('"Output"', "TYPE_INT32", "TYPE_FP32"), field("output", "data_type", INT32)),
    # What this backend does not do.
    Mistake("batch_input", ("batch_input BATCH_ELEMENT_COUNT for Count", "remove it"), batch_input),
    # Parameters.
    Mistake("flag", ("infer_end_requests", '"maybe"', "0, 1"), parameter("infer_end_requests", "maybe")),
]


class GrowingServer:
    """A server with a good model, a sequence on it, and models that are added one by one."""

    def __init__(self, server: TritonServer, client: InferenceServerClient):
        self.server, self.client = server, client
        self.sum = 0

    def load(self, name: str, folder: Folder) -> None:
        folder.write(self.server.repository / name)
        self.server.load(name)

    def go_on(self, **flags) -> None:
        """The sequence sends four rows of ones, and gets its sum of all so far."""
        self.sum += 4
        answer = infer(self.client, "good", 7, {"Input": np.ones((1, 4, 1, 5), np.float32)}, **flags)
        np.testing.assert_array_equal(answer["Output"], np.full((4, 1, 5), self.sum + 1, np.float32))


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrowingServer]:
    repository: Path = tmp_path_factory.mktemp("repository")
    with TritonServer(repository, explicit=True) as server, InferenceServerClient(server.grpc_url) as client:
        growing = GrowingServer(server, client)
        growing.load("good", Folder(config(parameter("infer_end_requests", "1")), onnx()))
        growing.go_on(start=True)
        yield growing
        growing.go_on(end=True)
    assert server.exit_code == 0


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_is_refused(growing, mistake):
    with pytest.raises(ServerError) as refusal:
        growing.load(mistake.name, mistake.folder())
    for word in mistake.words:
        assert word in str(refusal.value)
    assert "panic" not in str(refusal.value)
    assert not growing.client.is_model_ready(mistake.name)
    growing.go_on()


@pytest.mark.skipif(subprocess.getstatusoutput("nvidia-smi -L")[0] == 0, reason="this machine has a GPU")
def test_gpu_instances_need_a_gpu(growing):
    with pytest.raises(ServerError, match="KIND_GPU but no GPUs are available"):
        growing.load("gpu", Folder(config(field("instance_group", "kind", KIND_GPU)), onnx()))
    growing.go_on()


def test_says_everything_that_is_wrong_at_once(growing):
    def two(config: ModelConfig) -> None:
        pairs("<<<Accumulate_In, Nothing>>>")(config)
        one_more("output", "Mystery")(config)

    with pytest.raises(ServerError, match='(?s)"Nothing" is not an output.*"Mystery"'):
        growing.load("two", Folder(config(two), onnx()))


def test_loads_when_it_is_mended(growing):
    """The remedies are right: the same model without its mistake is served."""
    with pytest.raises(ServerError):
        growing.load("mended", Folder(config(pairs("<<<Accumulate_In>>>")), onnx()))
    (growing.server.repository / "mended" / "config.pbtxt").write_text(config())
    growing.server.load("mended")
    assert growing.client.is_model_ready("mended")


def test_server_starts_with_the_models_that_are_good(serve):
    """By default tritonserver ends at start-up because of one bad model; it need not, and the other is then served."""
    models = {"good": Folder(config(), onnx()), "bad": Folder(config(pairs("<<<Accumulate_In>>>")), onnx())}
    server = serve(models, options=["--exit-on-error=false", "--strict-readiness=false"])
    with InferenceServerClient(server.grpc_url) as client:
        assert client.is_model_ready("good")
        assert not client.is_model_ready("bad")
    assert "state_pairs" in server.log_text()
