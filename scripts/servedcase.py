"""A model, its configuration, and everything that is true of it: what trial.py needs to judge how it is served.

The maker of a case knows where the batch stands in every tensor, so a case can tell which requests are right for the
configuration that the server reports, and what ONNX Runtime answers to each sequence alone. Nothing here asks a server.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import ModelProto

Tensors = dict[str, np.ndarray]
Sequence = list[Tensors]  # what the requests of one sequence bring, in the model's own layout, with the batch


def nothing_given(_requests: Sequence) -> Tensors:
    return {}


def next_state(_old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


@dataclass(frozen=True)
class Case:
    """A model that is to be served.

    config       config.pbtxt without its parameters
    parameters   these, by name
    batch        where the batch stands in every tensor of the model, None: nowhere
    outputs      what clients are answered with
    states       the output that each state's input is read from in the next step
    initial      what states begin with, with a batch of 1
    sequences    what clients send. Without states, a request may have several rows
    given        inputs that the backend fills, from the requests up to this one
    updates      what becomes of a state, from what it was and what the model wrote; the others are replaced
    fixed        the batch was exported as a fixed 1
    decides      a refusal must name one of these
    remedy       parameters with which a refused model must be served; None: batch_axes for every tensor
    instead      what must be served in place of a model that is refused, rather than the same with the remedy
    refused      whether the load must be refused; None: it may be
    reference    another model for ONNX Runtime, where the test wants to be wrong
    told         the configuration says where the batch is in every tensor, so that nothing is left to refuse
    about        what it is, in a few words
    files        further files of the model's folder, by their path in it
    """

    name: str
    model: ModelProto
    config: str
    batch: dict[str, int | None]
    outputs: tuple[str, ...]
    sequences: list[Sequence]
    parameters: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    initial: Tensors = field(default_factory=dict)
    given: Callable[[Sequence], Tensors] = nothing_given
    updates: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = field(default_factory=dict)
    fixed: bool = False
    decides: tuple[str, ...] = ("batch_axes",)
    remedy: dict[str, str] | None = None
    instead: "Case | None" = None
    refused: bool | None = None
    reference: ModelProto | None = None
    told: bool = False
    about: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    def text(self, extra: dict[str, str] | None = None) -> str:
        """The config.pbtxt, with further parameters."""
        parameters = self.parameters | (extra or {})
        lines = [
            f"parameters {{ key: {quoted(key)} value {{ string_value: {quoted(value)} }} }}" for key, value in parameters.items()
        ]
        return "\n".join([self.config.strip(), *lines]) + "\n"

    def whole_truth(self) -> dict[str, str]:
        """The parameter that leaves nothing to find out about the batch.

        A batch that was exported as 1 is no axis of a state that the backend could have more lanes at.
        """
        stateful = {*self.states, *self.states.values()}
        axes = {
            name: "none" if axis is None or self.fixed and name in stateful else str(axis) for name, axis in self.batch.items()
        }
        return {"batch_axes": "; ".join(f"{name} = {axis}" for name, axis in axes.items())}

    def write(self, folder: Path, extra: dict[str, str] | None = None) -> None:
        """Writes the model's folder of a repository."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.pbtxt").write_text(self.text(extra))
        for path, data in {"1/model.onnx": self.model.SerializeToString(), **self.files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)

    def answers(self) -> list[Sequence]:
        """What ONNX Runtime says of each sequence, one after the other, in the model's layout; every row runs alone."""
        session = Session(self.reference or self.model)
        return [self._alone(session, sequence) for sequence in self.sequences]

    def _alone(self, session: "Session", sequence: Sequence) -> Sequence:
        answers, states = [], {name: self.initial[name] for name in self.states}
        for number, step in enumerate(sequence):
            feeds = step | states | self.given(sequence[: number + 1])
            if not self.states:
                answers.append(self._rows(session, feeds))
                continue
            outputs = session.run(feeds)
            states = {
                name: self.updates.get(name, next_state)(states[name], outputs[output]) for name, output in self.states.items()
            }
            answers.append({name: outputs[name] for name in self.outputs})
        return answers

    def _rows(self, session: "Session", feeds: Tensors) -> Tensors:
        """Each row by itself, together in one answer again."""
        each = [
            session.run({name: row_of(value, self.batch[name], row) for name, value in feeds.items()})
            for row in range(self.rows(feeds))
        ]
        return {name: np.concatenate([one[name] for one in each], axis=self.batch[name]) for name in self.outputs}

    def at_most(self, rows: int) -> "Case":
        """The same with requests of at most that many rows."""
        if max(self.rows(feeds) for sequence in self.sequences for feeds in sequence) <= rows:
            return self
        cut = [[{name: few_rows(value, self.batch[name], rows) for name, value in feeds.items()} for feeds in sequence]
               for sequence in self.sequences]  # fmt: skip
        return replace(self, sequences=cut)

    def rows(self, feeds: Tensors) -> int:
        """How many rows a request brings."""
        axes = {name: self.batch[name] for name in feeds}
        return max((feeds[name].shape[axis] for name, axis in axes.items() if axis is not None), default=1)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def row_of(value: np.ndarray, axis: int | None, row: int) -> np.ndarray:
    """One row. What the backend fills has one for all."""
    return value if axis is None or value.shape[axis] == 1 else np.take(value, [row], axis=axis)


def few_rows(value: np.ndarray, axis: int | None, rows: int) -> np.ndarray:
    return value if axis is None else np.take(value, range(min(rows, value.shape[axis])), axis=axis)


class Unservable(Exception):
    """What the server has filled in cannot be right for this model."""


@dataclass(frozen=True)
class Shapes:
    """How a model's tensors look in requests and answers, by the configuration that the server reports.

    rows   max_batch_size is above 0, so requests and answers have the batch in front
    dims   of every input and output
    """

    case: Case
    rows: bool
    dims: dict[str, list[int]]
    scalars: frozenset[str]

    @classmethod
    def of(cls, case: Case, config) -> "Shapes":
        """Of a ModelConfig."""
        tensors = [*config.input, *config.output]
        scalars = frozenset(each.name for each in tensors if each.HasField("reshape") and not each.reshape.shape)
        return cls(case, config.max_batch_size > 0, {each.name: list(each.dims) for each in tensors}, scalars)

    def request(self, feeds: Tensors) -> Tensors:
        """What is sent for what the model is to be fed."""
        return {name: self._sent(name, value) for name, value in feeds.items()}

    def _sent(self, name: str, value: np.ndarray) -> np.ndarray:
        if name not in self.dims:
            raise Unservable(f"the configuration that was filled in has no input {name}: it has {', '.join(self.dims)}")
        axis, rank = self.case.batch[name], self._rank(name)
        if not self.rows:
            return self._of_rank(name, value, rank)
        if axis is not None and rank == value.ndim - 1:
            value = np.moveaxis(value, axis, 0)
        else:
            value = value[np.newaxis]
        value = self._of_rank(name, value, rank + 1)
        return value.reshape(*value.shape, 1) if name in self.scalars else value

    def answer(self, name: str, value: np.ndarray) -> np.ndarray:
        """What the answer must be where the model says this."""
        axis, rank = self.case.batch[name], self._rank(name)
        if not self.rows:
            return self._of_rank(name, value, rank)
        whole = rank == value.ndim
        if whole and axis is not None and self.dims[name][axis] == -1 and self.case.states:
            return value  # NVIDIA's way of writing dims
        if axis is not None and not whole:
            value = np.moveaxis(value, axis, 0)
        elif axis is None or value.ndim == rank:
            value = value[np.newaxis]
        value = self._of_rank(name, value, rank + 1)
        return value.reshape(*value.shape, 1) if name in self.scalars else value

    def _rank(self, name: str) -> int:
        return 0 if name in self.scalars else len(self.dims[name])

    def _of_rank(self, name: str, value: np.ndarray, rank: int) -> np.ndarray:
        if value.ndim != rank:
            raise Unservable(
                f"{name} has dims {self.dims[name]}, max_batch_size {'above ' * self.rows}0, and is {value.ndim} axes "
                f"with the batch at {self.case.batch[name]}"
            )
        return value


class Session:
    """A model on ONNX Runtime's CPU provider, with names to arrays."""

    def __init__(self, model: ModelProto):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.outputs = [each.name for each in self.session.get_outputs()]

    def run(self, feeds: Tensors) -> Tensors:
        return dict(zip(self.outputs, self.session.run(self.outputs, feeds)))
