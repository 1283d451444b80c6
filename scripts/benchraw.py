"""One run of ONNX Runtime without a server, on tensors that are in place."""

import statistics
import time

import numpy as np
import onnxruntime
from onnxruntime import OrtValue

from benchlayout import Tensor
from benchworkload import Workload


class Raw:
    """A session of a workload's model, with the options that all contenders use."""

    def __init__(self, workload: Workload):
        self.layout = workload.layout
        self.session = onnxruntime.InferenceSession(workload.file, one_thread(), ["CPUExecutionProvider"])

    def run_us(self, lanes: int, seconds: float) -> float:
        """The median time of a run of so many lanes, in µs; it runs for the given time, but 5 times at least."""
        binding = self.session.io_binding()
        layout = self.layout
        states_before, states_after = zip(*layout.states)
        reset = [Tensor(layout.reset, np.bool_, (-1, 1))] if layout.reset else []
        kept = []  # the binding does not own the memory of inputs and outputs
        for tensor in (*layout.inputs, *reset, *states_before):
            kept.append(OrtValue.ortvalue_from_numpy(tensor.zeros(lanes)))
            binding.bind_ortvalue_input(tensor.name, kept[-1])
        for tensor in (*layout.outputs, *states_after):
            kept.append(OrtValue.ortvalue_from_numpy(tensor.zeros(lanes)))
            binding.bind_ortvalue_output(tensor.name, kept[-1])
        times = []
        end = time.perf_counter() + seconds
        while len(times) < 6 or time.perf_counter() < end:
            began = time.perf_counter()
            self.session.run_with_iobinding(binding)
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:]) * 1e6  # the first one allocates


def one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
