"""What the tensors of a benchmark's model are for, as its contenders must know it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

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
