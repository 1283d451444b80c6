"""States of random models: fixed, growing, sliding, of integers and bools, inside of operators, and without a batch."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from axisnames import BATCH, PAST, PRESENT, Spec
from randomgraph import CHANNEL, FLOAT, INT64, LAYER, Graph


@dataclass(frozen=True)
class State:
    """A pair of tensors. grows: it begins empty, or with one element as Triton's implicit state."""

    into: Spec
    out: Spec
    grows: bool = False

    def initial(self, length: int) -> np.ndarray:
        return np.zeros(self.into.shape({BATCH: 1, PAST: length}), self.into.dtype)


@dataclass(frozen=True)
class Body:
    """What the states of a model are made of.

    raw      the first input as floats, [batch, time, channels], exact
    time     the role of the time of what follows: OUT_TIME after a front end
    sizes    extents that are fixed
    """

    graph: Graph
    raw: str
    channels: int
    timed: bool
    time: str
    sizes: dict[str, int]

    def shuffled(self, *roles: str) -> tuple[str, ...]:
        return tuple(roles[at] for at in self.graph.random.permutation(len(roles)))

    def pair(self, names: tuple[str, str], dtype, roles: tuple[str, ...], **sizes: int) -> tuple[Spec, Spec]:
        fixed = self.sizes | {CHANNEL: self.channels} | sizes
        after = tuple(PRESENT if role == PAST else role for role in roles)
        return Spec(names[0], dtype, roles, fixed), Spec(names[1], dtype, after, fixed, output=True)


# Each kind takes what the model has computed, adds a state to the graph, and returns it with what the model goes on with.
Kind = Callable[[Body, tuple[str, str], str], tuple[State, str]]


def running_mean(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    g = body.graph
    layers = g.random.random() < 0.4
    roles = body.shuffled(LAYER, BATCH, CHANNEL) if layers else body.shuffled(BATCH, CHANNEL)
    into, out = body.pair(names, np.float32, roles, **({LAYER: int(g.random.integers(1, 4))} if layers else {}))
    after = g.op("Add", g.op("Mul", g.inside(into), g.constant(np.float32(0.5))), g.mean(value, 1))
    g.outside(out, after)
    return State(into, out), g.op("Add", value, after)


def gated(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """A GRU, which wants its state in the layout of ONNX."""
    g, size = body.graph, body.channels
    into, out = body.pair(names, np.float32, (LAYER, BATCH, CHANNEL), **{LAYER: 1})
    steps = g.op("Transpose", value, perm=[1, 0, 2])
    every, g_out = f"{out.name}_every", out.name
    weights = [g.numbers(1, 3 * size, size, scale=0.5), g.numbers(1, 3 * size, size, scale=0.5)]
    node = g.op("GRU", steps, *weights, "", "", into.name, result=every, hidden_size=size)
    g.nodes[-1].output.append(g_out)
    hidden = g.op("Transpose", g.op("Squeeze", node, g.constant([1])), perm=[1, 0, 2])
    return State(into, out), g.op("Add", value, hidden)


def convolution(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """The frames that a causal convolution still needs."""
    g, kernel = body.graph, int(body.graph.random.integers(2, 8))
    into, out = body.pair(names, np.float32, body.shuffled(BATCH, "K", CHANNEL), K=kernel - 1)
    whole = g.op("Concat", g.inside(into), value, axis=1)
    g.outside(out, g.last(whole, kernel - 1))
    return State(into, out), g.convolve(whole, body.channels, kernel)


def cache(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """Everything so far, or the latest of it."""
    g = body.graph
    into, out = body.pair(names, np.float32, body.shuffled(BATCH, PAST, CHANNEL))
    whole = g.op("Concat", g.inside(into), value, axis=1)
    if g.random.random() < 0.3:
        whole = g.last(whole, int(g.random.integers(2, 9)))
    g.outside(out, whole)
    return State(into, out, grows=True), g.op("Add", value, g.mean(whole, 1))


def tokens(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """All that was sent, as integers."""
    g = body.graph
    into, out = body.pair(names, np.int64, body.shuffled(BATCH, PAST))
    sent = g.cast(g.op("Floor", g.op("ReduceMax", body.raw, axes=[2], keepdims=1)), INT64)
    whole = g.op("Concat", g.inside(into), sent, axis=1)
    g.outside(out, whole)
    return State(into, out, grows=True), g.op("Add", value, g.mean(g.cast(whole, FLOAT), 1))


def total(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """A sum of integers, exact."""
    g = body.graph
    dtype = [np.int64, np.int32][int(g.random.integers(2))]
    roles = body.shuffled(BATCH, "K") if g.random.random() < 0.5 else (BATCH,)
    into, out = body.pair(names, dtype, roles, K=1)
    kind = INT64 if dtype is np.int64 else 6
    floor = g.op("Floor", g.op("ReduceMax", body.raw, axes=[1, 2], keepdims=1))
    after = g.op("Add", g.inside(into), g.cast(floor, kind))
    g.outside(out, after)
    return State(into, out), g.op("Add", value, g.op("Mul", g.cast(after, FLOAT), g.constant(np.float32(0.125))))


def flag(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """Whether anything was large so far."""
    g = body.graph
    roles = body.shuffled(BATCH, "K") if g.random.random() < 0.5 else (BATCH,)
    into, out = body.pair(names, np.bool_, roles, K=1)
    large = g.op("Greater", g.op("ReduceMax", body.raw, axes=[1, 2], keepdims=1), g.constant(np.float32(1.5)))
    after = g.op("Or", g.inside(into), large)
    g.outside(out, after)
    return State(into, out), g.op("Add", value, g.cast(after, FLOAT))


def shared(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """A state without a batch axis: requests run one at a time. Run together, they would be mixed without an error."""
    g = body.graph
    into, out = body.pair(names, np.float32, (CHANNEL,))
    after = g.op("Add", g.op("Mul", g.inside(into), g.constant(np.float32(0.5))), g.mean(value, 0, 1))
    g.outside(out, after)
    return State(into, out), g.op("Add", value, after)


def shared_count(body: Body, names: tuple[str, str], value: str) -> tuple[State, str]:
    """A number of frames for all."""
    g = body.graph
    into, out = body.pair(names, np.int64, ("K",), K=1)
    length = g.op("Slice", g.op("Shape", value), g.constant([1]), g.constant([2]))
    after = g.op("Add", into.name, length)
    g.op("Identity", after, result=out.name)
    return State(into, out), g.op("Add", value, g.op("Mul", g.cast(after, FLOAT), g.constant(np.float32(0.01))))


# With how often each is drawn.
KINDS: dict[Kind, int] = {
    running_mean: 5, gated: 3, convolution: 3, cache: 4, tokens: 2, total: 3, flag: 2, shared: 1, shared_count: 1,
}  # fmt: skip
NEED_TIME = {convolution, cache, tokens}
WITHOUT_BATCH = {shared, shared_count}
