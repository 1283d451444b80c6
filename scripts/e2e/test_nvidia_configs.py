"""The four configurations of NVIDIA's stateful backend, and what their clients rely upon."""

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import np_to_triton_dtype

import smoke
from configs import config, io
from conftest import Folder
from graphs import BF16, delay, model, op, tensor
from nvidia import BOOL_INT8, FP32, INT32, MIXED, PLAIN, configuration, fours, outcome, slots, variant
from streaming import Model
from unary import infer

CPU = model_config_pb2.ModelInstanceGroup.KIND_CPU
STRING, UINT64 = model_config_pb2.TYPE_STRING, model_config_pb2.TYPE_UINT64

# What the originals say, as far as they say the same.
COMMON = {
    "onnx_file_name": "model.onnx",
    "initial_buffer_size": "512",
    "subsequent_buffer_size": "100",
    "buffer_alloc_threshold": "32",
    "buffer_dealloc_threshold": "200",
    "store_states_as_fp16": "0",
    "always_pad_to_max_batch": "0",
    "enable_trt_caching": "1",
    "trt_cache_dir": "/tmp/trt_cache",
    "logging_level": "VERBOSE",
    "metric_logging_frequency_seconds": "2",
    "error_inject_rate": "15",
}
FIRST = {
    "enable_cuda_graph": "1",
    "batch_info_logging_level": "VERBOSE",
    "detailed_metrics_logging_level": "INFO",
}
ORIGINALS = {
    FP32: (
        {**FIRST, "ort_ep": "trt", "compute_precision": "fp32", "infer_end_requests": "0"},
        ([4, -1, 5], UINT64, 2, "<<<Accumulate_In, Accumulate_Out>>>"),
    ),
    INT32: (
        {"ort_ep": "trt", "compute_precision": "fp32", "infer_end_requests": "1"},
        ([4, -1, 5], UINT64, 2, "<<<Accumulate_In, Accumulate_Out>>>"),
    ),
    MIXED: (
        {"ort_ep": "cuda", "compute_precision": "fp16", "infer_end_requests": "0"},
        ([4, -1, 7], STRING, 2,
         "<<<Accumulate_In_int32, Accumulate_Out_int32>>>,<<<Accumulate_In_fp16, Accumulate_Out_fp16>>>"),
    ),
    BOOL_INT8: (
        {"ort_ep": "cuda", "compute_precision": "fp16", "infer_end_requests": "0"},
        ([4, -1, 3], STRING, 1,
         "<<<Accumulate_In_int8, Accumulate_Out_int8>>>,<<<Accumulate_In_bool, Accumulate_Out_bool>>>"),
    ),
}  # fmt: skip

ELEMENTS = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
            np.float16, np.float32, np.float64, BF16]  # fmt: skip


def typed(dtype: np.dtype | type) -> Folder:
    """Answers with the request before; END requests are not run."""
    name = np_to_triton_dtype(np.dtype(dtype))
    sides = [io("x", name, 2, 3)], [io("y", name, 2, 3)]
    return Folder(config(*sides, infer_end_requests="0"), lambda: delay(dtype, 2, 3))


def strings() -> Folder:
    """A string passes through, next to a state."""
    graph = lambda: model(
        op("Identity", "text -> same"),
        op("Add", "s x -> s_out"),
        inputs=[tensor("text", object, "batch", 2), tensor("x", np.float32, "batch", 1), tensor("s", np.float32, "batch", 1)],
        outputs=[tensor("same", object, "batch", 2), tensor("s_out", np.float32, "batch", 1)],
    )
    sides = [io("text", "STRING", 2), io("x", "FP32", 1)], [io("same", "STRING", 2)]
    return Folder(config(*sides, infer_end_requests="0"), graph)


def infer_end(base: str, value: str) -> str:
    return f"{base}_end_{value}"


def triton_dims(of) -> None:
    """Triton's own convention: dims without the batch axis."""
    for side in (of.input, of.output):
        for each in side:
            each.dims[:] = [dim for dim in each.dims if dim > 0]


MODELS = {
    **{infer_end(name, value): variant(name, infer_end_requests=value, **PLAIN) for name in ORIGINALS for value in "01"},
    **{f"typed_{np.dtype(dtype).name}": typed(dtype) for dtype in ELEMENTS},
    "strings": strings(),
    "triton_dims": variant(FP32, triton_dims, infer_end_requests="1", **PLAIN),
    "no_preferred_size": variant(FP32, slots(batch=16, candidates=64), infer_end_requests="1", **PLAIN),
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_configuration_is_the_original(name):
    own, (dims, ids, instances, pairs) = ORIGINALS[name]
    config = configuration(name)
    assert {key: value.string_value for key, value in config.parameters.items()} == {**COMMON, **own, "state_pairs": pairs}
    assert config.backend == "stateful" and config.max_batch_size == 16
    assert all(list(each.dims) == dims for each in [*config.input, *config.output])
    batching = config.sequence_batching
    assert batching.max_sequence_idle_microseconds == 100_000_000
    assert batching.oldest.max_candidate_sequences == 1280
    assert batching.oldest.max_queue_delay_microseconds == 2000
    assert not batching.oldest.preferred_batch_size
    assert [each.name for each in batching.control_input[:2]] == ["ResetSequence", "EndSequence"]
    assert [list(each.control[0].int32_false_true) for each in batching.control_input[:2]] == [[0, 1]] * 2
    assert batching.control_input[2].control[0].data_type == ids
    assert (config.instance_group[0].count, config.instance_group[0].kind) == (instances, CPU)


@pytest.mark.parametrize("value", "01")
@pytest.mark.parametrize("name", ORIGINALS)
def test_infer_end_requests(own_server, own_client, name, value):
    """Both ways with each model: every answer, END answers too, has the type and shape that it must have."""
    served = infer_end(name, value)
    assert Model.on(own_client, served).infer_end == (value == "1")
    requests = 0
    for result in smoke.test_model(own_server, served, sequences=8, steps=3):
        assert not result.mistakes
        assert result.requests == result.sequences * (result.steps + (value == "0"))
        requests += result.requests
    assert outcome(own_server, served, requests) == (requests, 0)


@pytest.mark.parametrize("dtype", ELEMENTS, ids=lambda dtype: np.dtype(dtype).name)
def test_end_answer_is_a_valid_tensor(own_server, own_client, dtype):
    """As many axes as any other answer, all of extent 1, and one element, zero."""
    name = f"typed_{np.dtype(dtype).name}"
    values = {"x": np.ones((1, 2, 3), dtype)}
    first = infer(own_client, name, 5, values, start=True)["y"]
    last = infer(own_client, name, 5, values, end=True)["y"]
    assert last.dtype == first.dtype
    np.testing.assert_array_equal(last, np.zeros((1, 1, 1), first.dtype))
    assert outcome(own_server, name, 2) == (2, 0)


def test_end_answer_of_texts(own_server, own_client):
    """The element is the empty text."""
    values = {"text": np.array([[b"some", b"text"]], object), "x": np.ones((1, 1), np.float32)}
    np.testing.assert_array_equal(infer(own_client, "strings", 5, values, start=True)["same"], values["text"])
    last = infer(own_client, "strings", 5, values, end=True)["same"]
    np.testing.assert_array_equal(last, np.array([[b""]], object))
    assert outcome(own_server, "strings", 2) == (2, 0)


def test_dims_of_both_conventions(own_client):
    """-1 at the batch axis: the answer has no axis in front. Without the batch axis: it has, as is Triton's way."""
    rows = np.arange(20, dtype=np.float32).reshape(1, 4, 5)
    name = infer_end(FP32, "1")
    for last, factor in ((False, 1), (True, 2)):
        marked = infer(own_client, name, 9, {"Input": rows.reshape(1, 4, 1, 5)}, start=not last, end=last)["Output"]
        plain = infer(own_client, "triton_dims", 9, {"Input": rows}, start=not last, end=last)["Output"]
        assert marked.shape == (4, 1, 5) and plain.shape == (1, 4, 5)
        np.testing.assert_array_equal(marked.reshape(4, 5), rows[0] + factor * rows[0].sum(axis=0))
        np.testing.assert_array_equal(plain[0], marked.reshape(4, 5))


def test_no_preferred_batch_size(own_client):
    """Triton then says that max_batch_size is preferred, and the C++ backend once had a default of its own, 64."""
    assert fours(own_client, "no_preferred_size", 1, start=True) == 4
    assert fours(own_client, "no_preferred_size", 1, end=True) == 8
