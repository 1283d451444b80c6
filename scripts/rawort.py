"""ONNX Runtime alone, as the floor of a benchmark: a loop over tensors that stay where they are.

The states of all sequences are in place: a step reads what an earlier one wrote, and nothing is copied. Only Run is
called, with everything bound before.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

DTYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.BOOL: np.bool_}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a model, with -1 for the batch."""

    name: str
    dtype: type
    shape: tuple[int, ...]

    @property
    def axis(self) -> int:
        return self.shape.index(-1)

    def zeros(self, batch: int) -> np.ndarray:
        return np.zeros([batch if extent < 0 else extent for extent in self.shape], self.dtype)


@dataclass(frozen=True)
class Layout:
    """What each tensor of a benchmark's model is for."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[tuple[Tensor, Tensor]]
    reset: str  # the boolean input that marks a START, or nothing

    @classmethod
    def of(cls, model: Path, pairs: list[tuple[str, str]], sizes: dict[str, int]) -> "Layout":
        """Reads the model. The states are the pairs of names; sizes are those of axes other than the batch."""
        graph = onnx.load(model, load_external_data=False).graph
        inputs, outputs = ({v.name: tensor(v, sizes) for v in values} for values in (graph.input, graph.output))
        states = [(inputs.pop(before), outputs.pop(after)) for before, after in pairs]
        resets = [name for name, each in inputs.items() if each.dtype is np.bool_]
        for name in resets:
            del inputs[name]
        return cls(list(inputs.values()), list(outputs.values()), states, "".join(resets))

    def state_bytes(self) -> int:
        return sum(before.zeros(1).nbytes for before, _ in self.states)

    def as_json(self) -> dict:
        """For internal/bench/python/model.py."""
        ports = [[{"name": t.name, "axis": t.axis} for t in tensors] for tensors in (self.inputs, self.outputs)]
        states = [
            {"input": before.name, "output": after.name, "axis": before.axis, "shape": before.zeros(1).shape}
            for before, after in self.states
        ]
        return {"inputs": ports[0], "outputs": ports[1], "states": states, "reset": self.reset}


def tensor(value: onnx.ValueInfoProto, sizes: dict[str, int]) -> Tensor:
    dims = value.type.tensor_type.shape.dim
    shape = tuple(d.dim_value or (-1 if d.dim_param == "batch" else sizes[d.dim_param]) for d in dims)
    return Tensor(value.name, DTYPES[value.type.tensor_type.elem_type], shape)


class RawModel:
    """A model in this process."""

    def __init__(self, model: Path, layout: Layout):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.layout = layout
        self.session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])

    def cpu_per_request(self, sequences: int, batch: int, seconds: float) -> float:
        """Microseconds of processor time of one of a batch's requests, when the sequences take turns in batches."""
        bindings = self.bindings(batch, groups=max(1, round(sequences / batch)))
        for binding in bindings:
            self.session.run_with_iobinding(binding)
        steps, begin, until = 0, time.process_time(), time.monotonic() + seconds
        while time.monotonic() < until:
            for binding in bindings:
                self.session.run_with_iobinding(binding)
            steps += len(bindings)
        return (time.process_time() - begin) * 1e6 / (steps * batch)

    def bindings(self, batch: int, groups: int) -> list[onnxruntime.IOBinding]:
        """Steps to be run in turns. The groups' states are in as many places and one more, where the next step writes;
        what it has read is free then for the one that follows. No other scheme touches less memory."""
        made = [self.session.io_binding() for _ in range(groups + 1)]
        for before, after in self.layout.states:
            places = [onnxruntime.OrtValue.ortvalue_from_numpy(before.zeros(batch)) for _ in made]
            for i, binding in enumerate(made):
                binding.bind_ortvalue_input(before.name, places[i])
                binding.bind_ortvalue_output(after.name, places[i - 1])
        inputs = [(each.name, each.zeros(batch)) for each in self.layout.inputs]
        if self.layout.reset:
            inputs.append((self.layout.reset, np.zeros([batch, 1], np.bool_)))
        for binding in made:
            for name, zeros in inputs:
                binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(zeros))
            for each in self.layout.outputs:
                value = onnxruntime.OrtValue.ortvalue_from_numpy(each.zeros(batch))
                binding.bind_ortvalue_output(each.name, value)
        return made
