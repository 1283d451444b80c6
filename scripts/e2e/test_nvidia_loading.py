"""Loading models as NVIDIA's stateful backend does, and saying what is wrong where it guessed, ignored or crashed."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient, model_config_pb2

from configs import config, io
from conftest import Folder
from graphs import model, op, tensor
from nvidia import (
    BOOL_INT8,
    FP32,
    INT32,
    PLAIN,
    ModelConfig,
    fours,
    lines,
    outcome,
    slots,
    together,
    variant,
)
from tritonserver import ServerError
from unary import infer

KIND_MODEL = model_config_pb2.ModelInstanceGroup.KIND_MODEL
RUN = {**PLAIN, "infer_end_requests": "1"}


def described(doc: str) -> Callable[[], ModelProto]:
    """Two states whose names tell nothing, named in the graph's doc string alone."""

    def make() -> ModelProto:
        return model(
            op("Add", "a x -> c"),
            op("Add", "b x -> twice"),
            op("Add", "twice x -> d"),
            op("Sub", "d c -> y"),
            inputs=[tensor(name, np.float32, "batch", 1) for name in "xab"],
            outputs=[tensor(name, np.float32, "batch", 1) for name in "ycd"],
            doc=doc,
        )

    return make


def one_float(doc: str) -> Folder:
    return Folder(config([io("x", "FP32", 1)], [io("y", "FP32", 1)]), described(doc))


DOCS = {
    "doc_states": "A model.\nInputState, OutputState: <<<a, c>>> <<<b, d>>>\n",
    "doc_early": "<<<x, y>>> InputState OutputState <<<a, c>>><<<b, d>>>",
}

WARMUP_NUMBERS = """
model_warmup [
  { name: "data" batch_size: 1 count: 2
    inputs { key: "Input" value { data_type: TYPE_FP32 dims: [4, 1, 5] random_data: true } } },
  { name: "controls" batch_size: 4
    inputs { key: "Input" value { data_type: TYPE_FP32 dims: [4, 1, 5] zero_data: true } }
    inputs { key: "ResetSequence" value { data_type: TYPE_INT32 dims: [1] zero_data: true } }
    inputs { key: "EndSequence" value { data_type: TYPE_INT32 dims: [1] zero_data: true } } }
]
"""
WARMUP_TEXTS = """
model_warmup [
  { name: "data" batch_size: 2
    inputs { key: "Input_int8" value { data_type: TYPE_INT8 dims: [4, 1, 3] zero_data: true } }
    inputs { key: "Input_bool" value { data_type: TYPE_BOOL dims: [4, 1, 3] zero_data: true } } }
]
"""


def two_instances(config: ModelConfig) -> None:
    config.instance_group[0].count = 2


def upper_case(config: ModelConfig) -> None:
    """Inputs, outputs and the START control are matched in any case, as they always were."""
    config.input[0].name, config.output[0].name = "INPUT", "output"
    config.sequence_batching.control_input[0].name = "resetsequence"


MODELS = {
    **{name: one_float(doc) for name, doc in DOCS.items()},
    "misspelt": variant(FP32, two_instances, **RUN, inital_buffer_size="512", infer_end_request="0", colour="red"),
    "idle_settings": variant(FP32, **{**RUN, "detailed_metrics_logging_level": "INFO"}, max_state_bytes="5"),
    "upper_case": variant(FP32, upper_case, **RUN),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCS)
def test_pairs_of_the_doc_string(own_client, name):
    """y = (b + 2x) - (a + x): right only if each state goes back to its own input."""

    def step(value: float, **flags) -> float:
        return infer(own_client, name, 1, {"x": np.full((1, 1), value, np.float32)}, **flags)["y"].item()

    assert [step(1, start=True), step(2), step(3, end=True)] == [1, 3, 6]


def test_model_warmup(serve):
    """Samples of model_warmup run, with and without control tensors, and leave no sequence open."""
    numbers = variant(FP32, slots(4, 10), WARMUP_NUMBERS, **RUN)
    strings = variant(BOOL_INT8, slots(4, 10), WARMUP_TEXTS, **RUN)
    server = serve({"numbers": numbers, "strings": strings}, options=["--log-verbose=1"])
    for name, batches in (("numbers", [1, 1, 4]), ("strings", [2])):
        ran = lines(server, "running inference", f"model={name} ")
        assert [int(line.rpartition("requests=")[2]) for line in ran] == batches
    sides = {"Input_int8": np.ones((1, 4, 1, 3), np.int8), "Input_bool": np.ones((1, 4, 1, 3), bool)}
    with InferenceServerClient(server.grpc_url) as client:
        for flags in ({"start": True}, {"end": True}):  # all nine slots are free
            for i in range(1, 10):
                fours(client, "numbers", i, **flags)
                infer(client, "strings", f"s{i}", sides, **flags)


def test_settings_without_effect_are_named_once(own_server):
    """Once for each instance."""
    gpu = "compute_precision, enable_cuda_graph, enable_trt_caching, error_inject_rate, ort_ep, trt_cache_dir"
    for name, instance, named in (
        ("idle_settings", "idle_settings_0_0", gpu.replace("enable_cuda", "detailed_metrics_logging_level, enable_cuda")
            .replace("ort_ep", "max_state_bytes, ort_ep")),
        ("misspelt", "misspelt_0_0", gpu),
        ("misspelt", "misspelt_0_1", gpu),
    ):  # fmt: skip
        (line,) = lines(own_server, f"model={name} ", f"instance={instance}", "without effect")
        assert line.startswith(f"without effect on this instance (CPU): {named} model=")


def test_names_in_another_case(own_client):
    value = {"INPUT": np.ones((1, 4, 1, 5), np.float32)}
    assert infer(own_client, "upper_case", 1, value, start=True)["output"][0, 0, 0] == 5
    assert infer(own_client, "upper_case", 1, value, end=True)["output"][0, 0, 0] == 9


def test_all_problems_at_once(serve):
    """Parameters, slots and what does not fit the model: one attempt to load shows them all."""

    def wrong(config: ModelConfig) -> None:
        slots(16, 1)(config)  # half of which is no slot
        config.input[0].data_type = model_config_pb2.TYPE_INT32
        config.output.add(name="Mystery", data_type=model_config_pb2.TYPE_FP32, dims=[1])

    bad = {
        "compute_precision": ("fp8", "one of fp16, fp32"),
        "store_states_as_fp16": ("yes", "one of 0, 1, false, true"),
        "always_pad_to_max_batch": ("max", "one of 0, 1, false, true"),
        "infer_end_requests": ("2", "one of 0, 1, false, true"),
        "enable_trt_caching": ("on", "one of 0, 1, false, true"),
        "enable_cuda_graph": ("-1", "one of 0, 1, false, true"),
        "metric_logging_frequency_seconds": ("2s", "a whole number of seconds"),
        "logging_level": ("DEBUG", "one of NONE, INFO, VERBOSE"),
        "batch_info_logging_level": ("info", "one of NONE, INFO, VERBOSE"),
        "detailed_metrics_logging_level": ("ALL", "one of NONE, INFO, VERBOSE"),
        "batch_padding": ("exact", "one of auto, none, preferred, max"),
        "when_full": ("wait", "one of reject, evict_lru"),
    }
    server = serve(
        {
            "wrong": variant(
                FP32,
                wrong,
                max_candidate_sequence_use_ratio="0.5",
                **{**PLAIN, **{name: value for name, (value, _) in bad.items()}},
            )
        },
        explicit=True,
    )
    with pytest.raises(ServerError) as refusal:
        server.load("wrong")
    text = str(refusal.value)
    for name, (value, want) in bad.items():
        assert f'parameter {name} is "{value}": want {want}' in text
    assert "max_candidate_sequences 1 times max_candidate_sequence_use_ratio 0.5" in text
    assert '"Input": data_type is TYPE_INT32' in text
    assert 'output "Mystery" of the configuration' in text
    assert len(text.splitlines()) == len(bad) + 3


LAZY = {"initial_buffer_size": "8", "subsequent_buffer_size": "4", "buffer_alloc_threshold": "4", "buffer_dealloc_threshold": "8"}
REFUSED = {
    "ratio_text": ({"max_candidate_sequence_use_ratio": "0.9abc"}, "want a number above 0"),
    "buffer_text": ({**LAZY, "initial_buffer_size": "many"}, 'initial_buffer_size is "many": want a whole number'),
    "buffer_missing": ({"initial_buffer_size": "8", "buffer_alloc_threshold": "4"}, "initial_buffer_size is given: subsequent"),
    "position": ({"state_pairs": "<<<Accumulate_In, Accumulate_Out>>> <<<Other>>>"}, "at character 37, .*<<<Other>>>.* has no comma"),
}  # fmt: skip


def test_what_is_refused(serve):
    """Settings that the C++ backend ignored, guessed, or ended the whole server over; which lives on here."""
    folders = {name: variant(FP32, slots(4, 20), **{**RUN, **parameters}) for name, (parameters, _) in REFUSED.items()}
    server = serve(folders, explicit=True)
    for name, (_, message) in REFUSED.items():
        with pytest.raises(ServerError, match=message):
            server.load(name)
    assert server.is_running()


def test_kind_model_is_refused(serve):
    """It meant the first GPU, without selecting it."""

    def kind(config: ModelConfig) -> None:
        config.instance_group[0].kind = KIND_MODEL

    server = serve({"kind": variant(FP32, kind, **RUN)}, explicit=True)
    with pytest.raises(ServerError, match="the instance's kind is model: want .*KIND_CPU .*KIND_GPU"):
        server.load("kind")


def test_load_and_unload_at_will(serve):
    """Two models of two instances each come and go in every order, while sequences of the other go on."""
    names = {"one": variant(FP32, two_instances, **RUN), "other": variant(INT32, two_instances, **RUN)}
    server = serve(names, explicit=True)
    with InferenceServerClient(server.grpc_url) as client:
        server.load("other")
        assert fours(client, "other", 9, dtype=np.int32, start=True) == 4
        for turn in range(2, 8):
            server.load("one")
            assert together(*(lambda i=i: fours(client, "one", i, i, start=True) for i in range(1, 9))) == [
                4 * i for i in range(1, 9)
            ]
            assert together(*(lambda i=i: fours(client, "one", i, i, end=True) for i in range(1, 9))) == [
                8 * i for i in range(1, 9)
            ]
            server.unload("one")
            assert fours(client, "other", 9, dtype=np.int32) == 4 * turn
        assert fours(client, "other", 9, dtype=np.int32, end=True) == 32
        assert outcome(server, "other", 8) == (8, 0)
    assert len(lines(server, "opened ONNX Runtime")) == 1  # one environment for all models
    server.stop()
    assert server.exit_code == 0


def test_loads_again_with_another_configuration(serve):
    """The server reads config.pbtxt again, and open sequences are gone with their states."""
    server = serve({"changing": variant(FP32, **RUN)}, explicit=True)
    path = server.repository / "changing" / "config.pbtxt"
    with InferenceServerClient(server.grpc_url) as client:
        server.load("changing")
        assert fours(client, "changing", 1, start=True) == 4
        assert fours(client, "changing", 1, end=True) == 8
        path.write_text(variant(FP32, **{**PLAIN, "infer_end_requests": "0"}).config)
        server.load("changing")
        assert fours(client, "changing", 1, start=True) == 4
        assert fours(client, "changing", 1, end=True) == 0
