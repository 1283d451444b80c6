"""Sequences on a served model, compared with ONNX Runtime in this process, which takes one sequence at a time."""

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper
from tritonclient.grpc import InferenceServerClient

from unary import infer

Tensors = dict[str, np.ndarray]

BF16 = np.dtype(ml_dtypes.bfloat16)

_ids = itertools.count(1000)


@dataclass(frozen=True)
class Reference:
    """A model, and how one sequence is run through it.

    states    the output that each state's input is read from in the next step
    initial   what states are at first, with the batch axis; the others are zeros, empty along dynamic axes
    axes      where the batch stands in inputs and outputs that have it elsewhere than in front; None: nowhere
    rows      requests and answers have the batch in front; False for max_batch_size 0
    given     inputs that the backend writes, by the requests up to the one that runs
    updates   what becomes of a state, by what it was and what the model wrote; the others are replaced
    """

    model: ModelProto
    states: dict[str, str] = field(default_factory=dict)
    initial: Tensors = field(default_factory=dict)
    axes: dict[str, int | None] = field(default_factory=dict)
    rows: bool = True
    given: Callable[[list[Tensors]], Tensors] = lambda steps: {}
    updates: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = field(default_factory=dict)

    def answers(self, steps: list[Tensors]) -> list[Tensors]:
        """What a sequence of these requests is answered with, in the shapes of the server's answers."""
        session = Session(self.model)
        states = {name: self.initial.get(name, session.zeros(name)) for name in self.states}
        answers = []
        for number, step in enumerate(steps):
            feeds = {name: self.from_request(name, value) for name, value in step.items()}
            outputs = session.run(feeds | states | self.given(steps[: number + 1]))
            states = {
                name: self.updates.get(name, replace)(states[name], outputs[output]) for name, output in self.states.items()
            }
            answers.append({name: self.to_answer(name, value) for name, value in outputs.items()})
        return answers

    def from_request(self, name: str, value: np.ndarray) -> np.ndarray:
        axis = self.axes.get(name, 0)
        rank = self.rank(name)
        if not self.rows:
            return value.reshape(value.shape[:rank])
        lane = value[0] if axis is None else np.moveaxis(value, 0, axis)
        return lane.reshape(lane.shape[:rank])  # [1] stands for no axis at all

    def to_answer(self, name: str, value: np.ndarray) -> np.ndarray:
        axis = self.axes.get(name, 0)
        if self.rows:
            value = value[np.newaxis] if axis is None or not value.ndim else np.moveaxis(value, axis, 0)
        return value.reshape(*value.shape, *(1 + self.rows - value.ndim) * [1])

    def rank(self, name: str) -> int:
        return next(len(each.type.tensor_type.shape.dim) for each in self.model.graph.input if each.name == name)


def replace(_old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


class Session:
    """A model on ONNX Runtime's CPU provider, with names to arrays, bfloat16 too."""

    def __init__(self, model: ModelProto):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.inputs = {each.name: each for each in model.graph.input}

    def zeros(self, name: str) -> np.ndarray:
        """One lane of zeros: the first dynamic axis is the batch, and others have length 0."""
        of = self.inputs[name].type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in of.shape.dim]
        dims = [1 if at == dims.index(-1) else 0 if dim < 0 else dim for at, dim in enumerate(dims)] if -1 in dims else dims
        return np.zeros(dims, helper.tensor_dtype_to_np_dtype(of.elem_type))

    def run(self, feeds: Tensors) -> Tensors:
        names = [each.name for each in self.session.get_outputs()]
        feeds = {name: _texts(value) if value.dtype == object else value for name, value in feeds.items()}
        if any(value.dtype == BF16 for value in feeds.values()):
            values = {name: _as_value(value) for name, value in feeds.items()}
            return dict(zip(names, map(_as_array, self.session.run_with_ort_values(names, values))))
        return dict(zip(names, self.session.run(names, feeds)))


def _texts(array: np.ndarray) -> np.ndarray:
    """ONNX Runtime takes strings, the client bytes."""
    return np.vectorize(bytes.decode, otypes=[object])(array)


def _as_value(array: np.ndarray) -> onnxruntime.OrtValue:
    if array.dtype != BF16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.ascontiguousarray(array).view(np.uint16), TensorProto.BFLOAT16
    )


def _as_array(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    shape = value.shape()
    data = ctypes.string_at(value.data_ptr(), BF16.itemsize * math.prod(shape))  # numpy() knows no bfloat16
    return np.frombuffer(data, BF16).reshape(shape)


def play(
    client: InferenceServerClient, model: str, sequences: Sequence[list[Tensors]], *, end: bool = True, ids=None
) -> list[list[Tensors]]:
    """Runs the sequences side by side: step after step, one request of each at the same time."""
    ids = ids or [next(_ids) for _ in sequences]
    answers: list[list[Tensors]] = [[] for _ in sequences]
    with ThreadPoolExecutor(len(sequences)) as pool:
        for step in range(max(map(len, sequences))):
            sent = {
                at: pool.submit(
                    infer, client, model, ids[at], steps[step],
                    start=step == 0, end=end and step == len(steps) - 1,
                )
                for at, steps in enumerate(sequences)
                if step < len(steps)
            }  # fmt: skip
            for at, answer in sent.items():
                answers[at].append(answer.result())
    return answers


def check(
    client: InferenceServerClient,
    model: str,
    reference: Reference,
    sequences: Sequence[list[Tensors]],
    *,
    tolerance: float = 0,
    batched: bool = True,
) -> None:
    """Plays the sequences and compares every answer, bit by bit unless there is a tolerance.

    batched: several of them must have been in one batch of Triton's, or the test has not tested what it is for. False
    leaves it to chance.
    """
    before = largest_batches(client, model)
    answers = play(client, model, sequences)
    after = largest_batches(client, model)
    for number, (steps, answered) in enumerate(zip(sequences, answers, strict=True)):
        for step, (got, want) in enumerate(zip(answered, reference.answers(steps), strict=True)):
            assert got, "the answer has no outputs"
            for name, value in got.items():
                where = f"sequence {number}, step {step}, output {name}"
                assert value.shape == want[name].shape, where
                same(value, want[name], tolerance, where)
    sizes = {size for size, count in after.items() if count > before.get(size, 0)}
    if batched and len(sequences) > 1:
        assert max(sizes) > 1, "no two requests were in one batch"


def same(got: np.ndarray, want: np.ndarray, tolerance: float, where: str) -> None:
    if want.dtype == object:
        want = np.vectorize(str.encode, otypes=[object])(want)
    assert got.dtype == want.dtype, where
    if tolerance:
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=where)
    else:
        np.testing.assert_array_equal(got, want, err_msg=where)


def largest_batches(client: InferenceServerClient, model: str) -> dict[int, int]:
    """How often each batch size has run, as the server counts it."""
    statistics = client.get_inference_statistics(model).model_stats[0]
    return {each.batch_size: each.compute_infer.count for each in statistics.batch_stats}
