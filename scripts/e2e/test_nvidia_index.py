"""Which tests show that the defects of NVIDIA's stateful backend are not in this one, and that what its history has
mended stays so.

A test here is FILE::NAME, in scripts/e2e or, if it is Go's, from the root; NAME may be a row of a table of tests.
"""

import re

import pytest

from tritonserver import ROOT

CAPI, STORE = "capi/{}_test.go::", "statebuffer/{}_test.go::"

# The numbers are only names. Of those that need CUDA, what can be shown without a GPU is: the strings of options, the
# device's memory on a fake driver, and that nothing is opened without need.
DEFECT_TESTS = {
    "B1 the END of an unknown sequence frees another one's slot": [
        "backend/execute_test.go::TestEveryModel",
        STORE.format("store") + "TestEndOfUnknown",
        "test_nvidia_sequences.py::test_whole_sequence_in_one_request",
        "test_nvidia_sequences.py::test_refused_start_that_ends",
    ],
    "B2 a request without START reads what is left in a slot": [
        "backend/execute_test.go::TestFull",
        "backend/execute_test.go::TestIdle",
        STORE.format("store") + "TestStartReadsNothingOfAnOlderOwner",
        "test_nvidia_sequences.py::test_nothing_of_an_older_sequence_is_seen",
        "test_nvidia_sequences.py::test_too_many_sequences",
        "test_examples.py::test_failed_start",
    ],
    "B3 a request that cannot be read ends the server": [
        "backend/admit_test.go::TestUnreadableRequest",
        CAPI.format("execute") + "TestUnreadableRequestsAreTheirOwnFault",
        "test_nvidia_sequences.py::test_ids_of_both_kinds_and_ends_without_their_controls",
    ],
    "B4 a request that failed stays in the batch": [
        "backend/execute_test.go::TestBadRequest",
        "test_examples.py::test_bad_requests_fail_alone",
    ],
    "B5 a chunk that cannot be allocated makes requests answered twice": [
        "backend/faults_test.go::TestFailedChunk",
        STORE.format("lazy") + "TestFailedChunk",
    ],
    "B6 a batch that failed spoils the next": [
        "backend/faults_test.go::TestFailedRun",
        "test_faults.py::test_a_fault_fails_its_batch_only",
    ],
    "B7 two requests of one ID in a batch share a slot": [
        "backend/execute_test.go::TestTwoRequestsOfOneSequence",
        "test_nvidia_sequences.py::test_same_id_ends_and_starts_in_one_batch",
    ],
    "B8 only the first buffer of an input is read, and its size is not checked": [
        "backend/execute_test.go::TestBadRequest",
        CAPI.format("execute") + "TestBuffersAreJoined",
        "test_examples.py::test_bad_request_changes_nothing",
        "test_request_features.py::test_shared_memory",
    ],
    "B9 types and shapes of the configuration are not compared with the model's": [
        "backend/plan_test.go::TestPlanRejects",
        "test_bad_models.py::test_is_refused",
    ],
    "B12 the level of ONNX Runtime's log is random": ["test_nvidia_logs.py::test_onnxruntime_log_level"],
    "B13 a number that is none ends the server": [
        "backend/config/params_test.go::TestLazyParameters",
        "test_nvidia_loading.py::test_what_is_refused",
        "test_nvidia_logs.py::test_onnxruntime_log_level_is_checked",
        CAPI.format("settings") + "TestSettings",
    ],
    "B14 a pair without an output crashes": [
        "backend/plan_test.go::pair without an output",
        "test_bad_models.py::unknown_state_output",
    ],
    "B15 END requests count as failed, and batches of them take 2^64 ns": [
        "backend/execute_test.go::TestEndNotInferred",
        CAPI.format("statistics") + "TestStatisticsWhereNothingRan",
        "test_nvidia_sequences.py::test_batch_of_nothing_but_ends",
        "test_nvidia_sequences.py::test_ends_and_requests_in_one_batch",
        "test_nvidia_configs.py::test_infer_end_requests",
    ],
    "B16 controls are read as int32 whatever they are": ["backend/plan_test.go::TestControlsOfEveryType"],
    "B10 a chunk of 2^31 elements overflows": [
        "ortrunner/memory_test.go::TestSlotsBeyond4GiB",
        "internal/devicememory/faults_test.go::TestTooLarge",
    ],
    "B11 options of TensorRT are strings that are gone": ["ortrunner/gpuoptions_test.go::TestTensorRTOptions"],
    "B17 every GPU is the first one": ["backend/fakegpu_test.go::TestGPUOptions"],
    "B18 END counts only if its control is 1": [
        "backend/execute_test.go::TestEndInferred",
        CAPI.format("execute") + "TestRequestFlags",
    ],
    "B19 a failure in between leaks responses": [CAPI.format("sweep") + "TestEveryCallOfExecuteFailsOnce"],
    "B20 an instance that did not load crashes when it is finalized": [
        CAPI.format("lifecycle") + "TestInstanceThatDoesNotLoad",
        CAPI.format("sweep") + "TestEveryCallOfALoadFailsOnce",
    ],
    "B21 an instance on the CPU asks for the GPU's memory": [
        "test_gpu.py::test_nvml_is_open_and_cuda_is_not",
        "test_gpu.py::test_without_a_driver",
    ],
    "B22 tables on the device are not freed": ["internal/devicememory/memory_test.go::TestKernels"],
    "B23 a chunk is left half allocated": [
        "backend/faults_test.go::TestFailedChunk",
        STORE.format("lazy") + "TestFailedChunk",
    ],
    "B24 faults for tests cannot be built in": ["test_faults.py::test_a_fault_fails_its_batch_only"],
    "B25 only the last tensor is logged": [
        "backend/report_test.go::TestLoadReport",
        "test_nvidia_logs.py::test_load_report",
    ],
    "B26 empty lists of tensors and dims are not expected": ["backend/load_test.go::TestEmptyLists"],
    "B27 a sequence that waits in the queue idles": [
        "backend/idle_test.go::TestQueuedSequencesKeepTheirState",
        "test_nvidia_sequences.py::test_idle_sequences_give_their_slots_back",
    ],
    "B28 the client's comparison passes whatever comes": [
        "test_examples.py::test_streams_of_many_sequences",
    ],
    "B29 errors are cut, and tell of the build machine": [
        "backend/run_test.go::TestErrorsAreWhole",
        "test_nvidia_loading.py::test_all_problems_at_once",
    ],
    "B30 slots get lost without a word": [
        "backend/instance_test.go::TestSlotsAreAccountedFor",
        "test_nvidia_storage.py::test_slots",
    ],
    "B31 batches that failed are in the averages": ["backend/report_test.go::TestMetrics"],
}

REGRESSION_TESTS = {
    "float32 states that are stored as float16 take half the memory, and others do not": [
        "test_nvidia_storage.py::test_half_storage_takes_half_the_memory",
        "test_nvidia_storage.py::test_half_storage_leaves_other_types_alone",
    ],
    "a refused request leaves every slot as it was": ["backend/execute_test.go::TestBadRequest"],
    "a sequence does not idle in the batch that has its request": ["backend/execute_test.go::TestIdle"],
    "several instances have equal numbers of slots": ["test_nvidia_storage.py::test_instances_have_equal_slots"],
    "chunks come on the CPU too": ["test_nvidia_storage.py::test_chunks_come_and_go"],
    "no uninitialised branch in allocation": [STORE.format("lazy") + "TestNotLazyNeverChanges"],
    "max_batch_size 16 without preferred sizes": ["test_nvidia_configs.py::test_no_preferred_batch_size"],
    "model_warmup with numbers and strings as IDs": ["test_nvidia_loading.py::test_model_warmup"],
    "a batch of END requests alone": ["test_nvidia_sequences.py::test_batch_of_nothing_but_ends"],
    "an END that is not run is answered with outputs": ["test_nvidia_configs.py::test_end_answer_is_a_valid_tensor"],
    "each output has its own type": ["test_examples.py::test_streams_of_many_sequences"],
    "strings as IDs": ["test_examples.py::test_texts_as_ids", "backend/execute_test.go::TestBorrowedIDs"],
    "one environment of ONNX Runtime for all models": ["test_nvidia_loading.py::test_load_and_unload_at_will"],
    "models run at load with inputs that they can take, and before the first request": ["backend/instance_test.go::TestWarmUp"],
    "states of every type": ["backend/execute_test.go::TestEveryModel", "test_dtypes.py::test_type"],
    "levels of the log": ["test_nvidia_logs.py::test_line_of_every_batch"],
    "thresholds of chunks are strict": [
        STORE.format("lazy") + "TestThresholdsAreStrict",
        "test_nvidia_storage.py::test_chunks_come_and_go",
    ],
    "START and END in one, not run, while another sequence has the first slot": [
        "backend/execute_test.go::TestEveryModel",
        STORE.format("store") + "TestEndOfUnknown",
        "test_nvidia_sequences.py::test_whole_sequence_in_one_request",
    ],
    "a refused START, then the sequence goes on and ends": [
        "backend/execute_test.go::TestFull",
        "test_nvidia_sequences.py::test_refused_start_that_ends",
    ],
    "an ID is used again before its END is answered": ["test_nvidia_sequences.py::test_same_id_ends_and_starts_in_one_batch"],
    "a request of two lanes": ["test_examples.py::lanes"],
    "an input in several buffers": [CAPI.format("execute") + "TestBuffersAreJoined"],
    "inputs and outputs in GPU memory": [
        CAPI.format("execute") + "TestUnreadableRequestsAreTheirOwnFault",
        CAPI.format("execute") + "TestOutputBufferOnDevice",
    ],
    "an ID of another type": [
        CAPI.format("execute") + "TestSequenceID",
        "test_nvidia_sequences.py::test_ids_of_both_kinds_and_ends_without_their_controls",
    ],
    "types of configuration and model that differ": ["test_bad_models.py::input_type", "test_bad_models.py::output_type"],
    "ratios 0, 1, 1.2 and text": ["test_nvidia_storage.py::ratio_above_one", "test_nvidia_loading.py::ratio_text"],
    "initial_buffer_size is text": ["test_nvidia_loading.py::buffer_text"],
    "no ort-logging-level": ["test_nvidia_logs.py::test_onnxruntime_log_level"],
}


def has(test: str) -> bool:
    """Whether the file defines that test, or has a row of that name."""
    path, _, name = test.partition("::")
    text = (ROOT / (path if path.endswith(".go") else f"scripts/e2e/{path}")).read_text()
    return re.search(rf'^(def|func) {name}\(|"{name}"', text, re.MULTILINE) is not None


@pytest.mark.parametrize("tests", (DEFECT_TESTS | REGRESSION_TESTS).values(), ids=(DEFECT_TESTS | REGRESSION_TESTS).keys())
def test_is_shown(tests):
    assert tests
    assert [test for test in tests if not has(test)] == []


def test_a_test_that_is_not_there_is_noticed():
    assert not has("test_nvidia_index.py::test_nothing")
