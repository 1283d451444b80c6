"""Makes the files of the example models: python models/generate.py [FOLDER]

It also makes those of models/generate_streaming.py. Every model here adds up what a sequence sends. A request has 4 rows
of K features. For each of its tracks (an input, a running sum that is a state, and an output) the model computes

    sum' = sum of the rows + (0 at the start of a sequence, else sum)
    output[row] = input[row] + sum'

and returns sum' as the new state. The models differ in their types: mixed_io_bool_int8 computes and stores its sums in
float32, and casts inputs and outputs. The bytes of the files are the same every time.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from generate_streaming import ENSEMBLES, STREAMING, Streaming

# Old enough for any ONNX Runtime that users of these models may have. ReduceSum has its axes as an attribute.
OPSET = 11
IR_VERSION = 7

RESET = "ResetSequence"  # the boolean input that is true at START
INITIAL = "Accumulate_Initial_Vals"


@dataclass(frozen=True)
class Track:
    """An input, its running sum and an output. The suffix makes their names unique among several tracks."""

    suffix: str
    io: int  # ONNX type of the input and the output
    state: int  # ONNX type of the running sum and of the arithmetic
    initial: str = INITIAL  # the initializer with the initial sum

    @property
    def casts(self) -> bool:
        return self.io != self.state


@dataclass(frozen=True)
class Example:
    """One example model."""

    name: str
    features: int
    tracks: tuple[Track, ...]
    shape_of: str  # the input whose shape gives the batch size
    files: ClassVar[dict[str, bytes]] = {}  # none except the model

    def model(self) -> ModelProto:
        """Returns the whole model, checked."""
        model = helper.make_model(self.graph(), ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])
        onnx.checker.check_model(model, full_check=True)
        return model

    def graph(self) -> GraphProto:
        rows = ["seq", "batch", self.features]
        lane = ["batch", self.features]
        value = helper.make_tensor_value_info
        inputs = [value(f"Input{t.suffix}", t.io, rows) for t in self.tracks]
        inputs += [value(f"Accumulate_In{t.suffix}", t.state, lane) for t in self.tracks]
        inputs += [value(RESET, TensorProto.BOOL, ["batch", 1])]
        outputs = [value(f"Output{t.suffix}", t.io, rows) for t in self.tracks]
        outputs += [value(f"Accumulate_Out{t.suffix}", t.state, lane) for t in self.tracks]
        return helper.make_graph(list(self.nodes()), self.name, inputs, outputs, self.initializers())

    def initializers(self) -> list[TensorProto]:
        constants = {"Zero_Const": 0, "One_Const": 1, "Two_Const": 2}
        tensors = [numpy_helper.from_array(np.array([number], np.int64), name) for name, number in constants.items()]
        types = {track.initial: track.state for track in self.tracks}
        for name, onnx_type in types.items():
            zeros = np.zeros(self.features, helper.tensor_dtype_to_np_dtype(onnx_type))
            tensors.append(numpy_helper.from_array(zeros, name))
        return tensors

    def nodes(self) -> Iterator[NodeProto]:
        """Yields the nodes: first those for the shape [batch, 1] of an initial state, then those of each track."""
        yield helper.make_node("Shape", [self.shape_of], ["Input_Shape"])
        yield helper.make_node("Slice", ["Input_Shape", "One_Const", "Two_Const", "Zero_Const"], ["Input_Shape_Slice"])
        yield helper.make_node("Concat", ["Input_Shape_Slice", "One_Const"], ["States_Shape"], axis=0)
        for track in self.tracks:
            yield from track_nodes(track)


def track_nodes(track: Track) -> Iterator[NodeProto]:
    s = track.suffix
    addend, total = f"Input{s}", f"Output{s}"
    if track.casts:
        addend, total = f"Input_Val_For{s}", f"Output_Val_For{s}"
        yield helper.make_node("Cast", [f"Input{s}"], [addend], to=track.state)
    yield helper.make_node("ReduceSum", [addend], [f"Input_Reduce{s}"], axes=[0], keepdims=0)
    yield helper.make_node("Expand", [track.initial, "States_Shape"], [f"Accumulate_Init_Expanded{s}"])
    # Where instead of a product: nothing that a fresh state contains, even NaN, may reach the sum.
    yield helper.make_node("Where", [RESET, f"Accumulate_Init_Expanded{s}", f"Accumulate_In{s}"], [f"Accumulate_Val{s}"])
    yield helper.make_node("Add", [f"Input_Reduce{s}", f"Accumulate_Val{s}"], [f"Accumulate_Out{s}"], name=f"Add_States{s}")
    yield helper.make_node("Add", [addend, f"Accumulate_Out{s}"], [total], name=f"Add_Out{s}")
    if track.casts:
        yield helper.make_node("Cast", [total], [f"Output{s}"], to=track.io)


EXAMPLES = {
    example.name: example
    for example in [
        Example("accumulate_fp32", 5, (Track("", TensorProto.FLOAT, TensorProto.FLOAT),), shape_of="Input"),
        Example("accumulate_int32", 5, (Track("", TensorProto.INT32, TensorProto.INT32),), shape_of="Input"),
        Example(
            "mixed_io_int32_fp16",
            7,
            (
                Track("_fp16", TensorProto.FLOAT16, TensorProto.FLOAT16, initial=f"{INITIAL}_fp16"),
                Track("_int32", TensorProto.INT32, TensorProto.INT32, initial=f"{INITIAL}_int32"),
            ),
            shape_of="Input_int32",
        ),
        Example(
            "mixed_io_bool_int8",
            3,
            (
                Track("_bool", TensorProto.BOOL, TensorProto.FLOAT),
                Track("_int8", TensorProto.INT8, TensorProto.FLOAT),
            ),
            shape_of="Input_bool",
        ),
    ]
}


def write(example: Example | Streaming, repository: Path) -> Path:
    """Writes the example's files into a model repository and returns the path of the ONNX file."""
    folder = repository / example.name
    path = folder / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(example.model().SerializeToString(deterministic=True))
    for name, content in example.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return path


def main() -> int:
    if len(sys.argv) > 2 or any(argument.startswith("-") for argument in sys.argv[1:]):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    for example in (EXAMPLES | STREAMING).values():
        print("wrote", write(example, repository))
    for name in ENSEMBLES:
        (repository / name / "1").mkdir(parents=True, exist_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
