"""The example models in numpy: sequences of requests, and the numbers that they must be answered with.

What the models compute is said in models/generate.py; here it is computed in float64, from the inputs alone. The
inputs are small multiples of 1/4 that keep the sums small, so that every type, float16 too, holds them exactly: no
comparison needs a tolerance, and int8 never overflows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streaming import Model, Tensor

LIMIT = 60  # of a running sum; 60 and the largest input and row sum beyond it fit into int8, and in float16 with 1/4


@dataclass(frozen=True)
class Request:
    """A request of a sequence. Without expected outputs it only ends the sequence, and the answer means nothing."""

    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray] | None
    start: bool = False
    end: bool = False


@dataclass(frozen=True)
class Sequence:
    """A client's sequence, whole."""

    id: int | str
    requests: list[Request]


class Track:
    """An input, its running sum and its output."""

    def __init__(self, source: Tensor, target: Tensor):
        self.source, self.target = source, target
        self.sum = np.zeros(source.shape[2:])  # [1, features]

    def step(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Takes the rows [4, 1, features] of a request; returns its input and the output that must come."""
        self.sum = self.sum + rows.sum(axis=0)
        output = (rows + self.sum).astype(self.target.dtype)  # to bool as in ONNX: whether it is not 0
        return rows.astype(self.source.dtype)[np.newaxis], output

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Random rows that the input's type can hold."""
        shape = self.source.shape[1:]
        if self.source.dtype == bool:
            return (generator.random(shape) < 0.1).astype(float)  # rare, so that outputs are False for some steps
        step = 4 if np.issubdtype(self.source.dtype, np.floating) else 1
        rows = generator.integers(-3 * step, 3 * step, shape, endpoint=True) / step
        return np.where(abs(self.sum + rows.sum(axis=0)) > LIMIT, -rows, rows)


def random_sequences(model: Model, count: int, steps: int) -> list[Sequence]:
    """Sequences of random inputs, the same ones every time."""
    sequences = []
    for index in range(count):
        generator = np.random.default_rng(index)
        # IDs beyond 32 bits: none of theirs may get lost on the way.
        sequences.append(_sequence(model, 2**40 + index, steps, lambda track, step: track.draw(generator)))
    return sequences


# What the C++ client of NVIDIA's stateful backend expects of the accumulate models, for its input of row i, column c,
# step g of sequence q: 5i + c + 100g + 1000q. Here by (q, g): a and k of the output a + 5i + kc.
KNOWN = {
    (0, 0): (30, 5),
    (0, 1): (560, 9),
    (0, 2): (1490, 13),
    (1, 0): (5030, 5),
    (1, 1): (9560, 9),
    (1, 2): (14490, 13),
}


def known_sequences(model: Model) -> list[Sequence]:
    """Two sequences of three steps whose answers are known numbers, not computed here."""
    source, target = model.inputs[0], model.outputs[0]
    rows, _, columns = source.shape[1:]
    i, c = np.arange(rows).reshape(rows, 1, 1), np.arange(columns)
    sequences = []
    for q in (0, 1):
        sequence = _sequence(model, q + 1, 3, lambda track, g: (5 * i + c + 100 * g + 1000 * q).astype(float))
        for g, request in enumerate(sequence.requests[:3]):
            a, k = KNOWN[q, g]
            request.expected[target.name] = (a + 5 * i + k * c).astype(target.dtype)
        sequences.append(sequence)
    return sequences


def _sequence(model: Model, number: int, steps: int, draw: Callable[[Track, int], np.ndarray]) -> Sequence:
    """A sequence; draw gives the rows of a track's input at a step."""
    # Inputs and outputs of the example models belong together in the order of the configuration.
    tracks = [Track(source, target) for source, target in zip(model.inputs, model.outputs, strict=True)]
    requests = []
    for step in range(steps):
        inputs, expected = {}, {}
        for track in tracks:
            inputs[track.source.name], expected[track.target.name] = track.step(draw(track, step))
        requests.append(Request(inputs, expected, start=step == 0, end=model.infer_end and step == steps - 1))
    if not model.infer_end:
        requests.append(Request({tensor.name: tensor.zeros() for tensor in model.inputs}, None, end=True))
    return Sequence(f"sequence-{number}" if model.string_ids else number, requests)
