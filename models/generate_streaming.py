"""The streaming example models: small models of common kinds, with random weights.

models/generate.py writes them with the others. Weights come from a fixed seed, so the bytes of the files are the same every
time. The batch axes and the initial values of states differ from model to model. Only implicit_state has an input for START.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, TensorProto

from graph import Graph

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Streaming:
    """One example model, and its other files by their path in the model's folder."""

    name: str
    build: Callable[[], Graph]
    files: dict[str, bytes] = field(default_factory=dict)

    def model(self) -> ModelProto:
        """Returns the whole model, checked."""
        return self.build().model()


class Network(Graph):
    """A graph of the layers that the examples have in common."""

    def __init__(self, name: str):
        super().__init__(name, seed=sum(map(ord, name)))

    def weight(self, *shape: int) -> str:
        """Adds random weights, scaled so that a product with them keeps the magnitude of its input."""
        return self.constant(self.random.standard_normal(shape) / np.sqrt(shape[0]), np.float32)

    def reshape(self, value: str, *shape: int) -> str:
        return self.op("Reshape", value, self.constant(shape))

    def attend(self, query: str, key: str, value: str, visible: str, width: int) -> str:
        """Adds attention of the queries to the values. The key is already transposed; visible is a mask."""
        scores = self.op("Mul", self.op("MatMul", query, key), self.constant(width**-0.5, np.float32))
        scores = self.op("Where", visible, scores, self.constant(-1e9, np.float32))
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), value)


def streaming_lstm() -> Network:
    """Two LSTM layers over the frames of a chunk, and a linear layer. The batch is the middle axis of the states."""
    features, hidden, layers, classes = 8, 16, 2, 4
    g = Network("streaming_lstm")
    x = g.op("Transpose", g.input("x", FLOAT, "batch", "frames", features), perm=[1, 0, 2])
    before = {name: g.input(name, FLOAT, layers, "batch", hidden) for name in ("h", "c")}
    after: dict[str, list[str]] = {"h": [], "c": []}
    for layer in range(layers):
        h, c = (g.slice(before[name], layer, layer + 1, axis=0) for name in ("h", "c"))
        reads = features if layer == 0 else hidden
        gates = [g.op("Transpose", g.weight(rows, 4 * hidden), perm=[1, 0]) for rows in (reads, hidden)]
        gates = [g.op("Unsqueeze", gate, g.constant([0])) for gate in gates]
        y, h, c = g.op("LSTM", x, *gates, "", "", h, c, outputs=3, hidden_size=hidden)
        x = g.op("Squeeze", y, g.constant([1]))  # the direction
        after["h"].append(h)
        after["c"].append(c)
    y = g.op("MatMul", g.op("Transpose", x, perm=[1, 0, 2]), g.weight(hidden, classes))
    g.output(y, "y", FLOAT, "batch", "frames", classes)
    for name, parts in after.items():
        g.output(g.op("Concat", *parts, axis=0), f"{name}_out", FLOAT, layers, "batch", hidden)
    return g


def kv_decoder() -> Network:
    """A decoder of two attention layers whose caches of keys and values start empty and grow with every token."""
    vocabulary, positions, heads, width, layers = 32, 128, 2, 8, 2
    model = heads * width
    g = Network("kv_decoder")
    tokens = g.input("input_ids", INT64, "batch", "sequence")
    position = g.input("position", INT64, "batch", 1)
    count = g.op("Gather", g.op("Shape", tokens), g.constant(1))
    steps = g.op("Range", g.constant(0), count, g.constant(1))
    places = g.op("Add", position, steps)  # [batch, sequence]
    embedded = (g.op("Gather", g.weight(rows, model), at) for rows, at in ((vocabulary, tokens), (positions, places)))
    x = g.op("Add", *embedded)
    present = {}
    for layer in range(layers):
        q, k, v = (g.reshape(g.op("MatMul", x, g.weight(model, model)), 0, 0, heads, width) for _ in range(3))
        q, k, v = (g.op("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, k, v))
        for name, new in (("key", k), ("value", v)):
            past = g.input(f"past_key_values.{layer}.{name}", FLOAT, "batch", heads, "past", width)
            present[f"present.{layer}.{name}"] = g.op("Concat", past, new, axis=2)
        k, v = present[f"present.{layer}.key"], present[f"present.{layer}.value"]
        total = g.op("Gather", g.op("Shape", k), g.constant(2))
        all_places = g.op("Range", g.constant(0), total, g.constant(1))
        earlier = g.op("LessOrEqual", all_places, g.reshape(places, 0, 1, -1, 1))
        seen = g.attend(q, g.op("Transpose", k, perm=[0, 1, 3, 2]), v, earlier, width)
        seen = g.reshape(g.op("Transpose", seen, perm=[0, 2, 1, 3]), 0, 0, model)
        x = g.op("Add", x, g.op("MatMul", seen, g.weight(model, model)))
    g.output(g.op("MatMul", x, g.weight(model, vocabulary)), "logits", FLOAT, "batch", "sequence", vocabulary)
    for name, value in present.items():
        g.output(value, name, FLOAT, "batch", heads, "total", width)
    return g


def conformer_like() -> Network:
    """Two layers, each with attention over a cache of frames and a causal convolution over another cache. The batch is
    axis 1 of cached keys, 2 of values, and 0 of the convolution's cache and of the number of frames seen so far, which masks
    the empty part of the cache."""
    frames, features, heads, left, kernel, layers = 4, 8, 2, 6, 3, 2
    width = features // heads
    g = Network("conformer_like")
    x = g.input("x", FLOAT, "batch", frames, features)
    lengths = g.input("x_lens", INT64, "batch")
    seen_before = g.input("processed_lens", INT64, "batch")
    # A position of the cache is visible if it has one of the frames seen so far; of the chunk, x_lens frames are visible.
    filled = g.op("Less", g.constant(list(range(left - 1, -1, -1))), g.reshape(seen_before, -1, 1))
    chunk = g.op("Less", g.constant(list(range(frames))), g.reshape(lengths, -1, 1))
    visible = g.reshape(g.op("Concat", filled, chunk, axis=1), 0, 1, 1, left + frames)
    outputs = []
    for layer in range(layers):
        q, k, v = (g.op("MatMul", x, g.weight(features, features)) for _ in range(3))
        cached_key = g.input(f"cached_key_{layer}", FLOAT, left, "batch", features)
        keys = g.op("Concat", cached_key, g.op("Transpose", k, perm=[1, 0, 2]), axis=0)
        cached_val = g.input(f"cached_val_{layer}", FLOAT, heads, left, "batch", width)
        split = g.op("Transpose", g.reshape(v, 0, 0, heads, width), perm=[2, 1, 0, 3])
        values = g.op("Concat", cached_val, split, axis=1)
        q = g.op("Transpose", g.reshape(q, 0, 0, heads, width), perm=[0, 2, 1, 3])
        per_head = g.op("Transpose", g.reshape(keys, 0, 0, heads, width), perm=[1, 2, 3, 0])
        seen = g.attend(q, per_head, g.op("Transpose", values, perm=[2, 0, 1, 3]), visible, width)
        x = g.op("Add", x, g.reshape(g.op("Transpose", seen, perm=[0, 2, 1, 3]), 0, 0, features))

        cached_conv = g.input(f"cached_conv_{layer}", FLOAT, "batch", features, kernel - 1)
        rows = g.op("Concat", cached_conv, g.op("Transpose", x, perm=[0, 2, 1]), axis=2)
        filters = g.constant(g.random.standard_normal((features, 1, kernel)) / kernel, np.float32)
        mixed = g.op("Conv", rows, filters, group=features)
        x = g.op("Add", x, g.op("Transpose", g.op("Tanh", mixed), perm=[0, 2, 1]))
        last = np.iinfo(np.int64).max
        outputs += [
            (g.slice(keys, -left, last, axis=0), f"new_cached_key_{layer}", FLOAT, left, "batch", features),
            (g.slice(values, -left, last, axis=1), f"new_cached_val_{layer}", FLOAT, heads, left, "batch", width),
            (g.slice(rows, 1 - kernel, last, axis=2), f"new_cached_conv_{layer}", FLOAT, "batch", features, kernel - 1),
        ]
    g.output(x, "encoder_out", FLOAT, "batch", frames, features)
    g.output(g.op("Min", lengths, g.constant(frames)), "encoder_out_lens", INT64, "batch")
    g.output(g.op("Add", seen_before, lengths), "new_processed_lens", INT64, "batch")
    for output in outputs:
        g.output(*output)
    return g


IMPLICIT_MEAN = np.array([0.5, -0.5, 2, 0], np.float32)


def implicit_state() -> Network:
    """A moving average, and a sum that the START flag resets, as in models for Triton's implicit state."""
    g = Network("implicit_state")
    x = g.input("INPUT", FLOAT, "batch", 4)
    start = g.input("START", FLOAT, "batch", 1)
    mean_before = g.input("MEAN_IN", FLOAT, "batch", 4)
    sum_before = g.input("SUM_IN", FLOAT, "batch", 4)
    quarter = g.op("Mul", g.op("Sub", x, mean_before), g.constant(0.25, np.float32))
    mean = g.op("Add", mean_before, quarter)
    keep = g.op("Sub", g.constant(1, np.float32), start)
    total = g.op("Add", g.op("Mul", sum_before, keep), x)
    g.output(g.op("Add", mean, total), "OUTPUT", FLOAT, "batch", 4)
    g.output(mean, "MEAN_OUT", FLOAT, "batch", 4)
    g.output(total, "SUM_OUT", FLOAT, "batch", 4)
    return g


def ensemble_first() -> Network:
    """Subtracts the mean from every frame; has no states."""
    g = Network("ensemble_first")
    frames = g.input("frames", FLOAT, "batch", "count", 8)
    centred = g.op("Sub", frames, g.op("ReduceMean", frames, axes=[2], keepdims=1))
    g.output(centred, "centred", FLOAT, "batch", "count", 8)
    return g


def ensemble_last() -> Network:
    """Turns the scores of every frame into probabilities; has no states."""
    g = Network("ensemble_last")
    values = g.input("values", FLOAT, "batch", "count", 4)
    g.output(g.op("Softmax", values, axis=-1), "probabilities", FLOAT, "batch", "count", 4)
    return g


STREAMING = {
    example.name: example
    for example in [
        Streaming("streaming_lstm", streaming_lstm),
        Streaming("kv_decoder", kv_decoder),
        Streaming("conformer_like", conformer_like),
        Streaming("implicit_state", implicit_state, {"initial_state/mean.bin": IMPLICIT_MEAN.tobytes()}),
        Streaming("ensemble_first", ensemble_first),
        Streaming("ensemble_last", ensemble_last),
    ]
}

# Ensembles have a configuration and no model, but Triton needs the folder of their version.
ENSEMBLES = ["ensemble"]
