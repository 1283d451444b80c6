"""Small models in which a time is easily taken for the batch: what was seen to mix sequences, or to be lost."""

import re

import numpy as np
from onnx import NodeProto

from gallery_names import full, io, listed
from graphs import model, op, tensor
from servedcase import Case
from signatures import THREE_LINES, family

F32, I64 = np.float32, np.int64
DYNAMIC = """
backend: "stateful"
max_batch_size: 4
input [ {x} ]
output [ {y} ]
dynamic_batching {{ max_queue_delay_microseconds: 5000 }}
instance_group [{{ kind: KIND_CPU }}]
"""


def everywhere(name: str, time: str, batch: str, config: str = THREE_LINES, **more) -> Case:
    """Every tensor is [time, batch, 8]: a softmax over the time, and a window that slides."""
    dims = (time, batch, 8)
    return Case(
        name=name,
        model=model(
            op("Softmax", "x -> weights", axis=0),
            op("Add", "x weights -> weighted"),
            op("Concat", "past weighted -> whole", axis=0),
            op("ReduceMean", "whole -> mean", axes=[0], keepdims=1),
            op("Add", "weighted mean -> y"),
            op("Slice", "whole start end axis -> present"),
            inputs=[tensor("x", F32, *dims), tensor("past", F32, *dims)],
            outputs=[tensor("y", F32, *dims), tensor("present", F32, *dims)],
            constants={"start": np.array([-3]), "end": np.array([2**31]), "axis": np.array([0])},
        ),
        config=config,
        batch={"x": 1, "past": 1, "y": 1, "present": 1},
        outputs=("y",),
        sequences=sent("x", F32, (4, 1, 8), (4, 1, 8), (2, 1, 8)),
        states={"past": "present"},
        initial={"past": np.zeros((0, 1, 8), F32)},
        **more,
    )


def sent(name: str, dtype, *shapes: tuple[int, ...], count: int = 4, **others: np.ndarray) -> list:
    random = np.random.default_rng(2)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        made = random.standard_normal(shape) if dtype is F32 else random.integers(-9, 10, shape)
        return made.astype(dtype)

    return [[{name: values(shape)} | others for shape in shapes] for _ in range(count)]


def stateless_sums(name: str, time: str | None, batch: str | None) -> Case:
    """y = the sums of x over its first axis; nothing is kept."""
    dims = (time, batch, 2)
    return Case(
        name=name,
        model=model(
            op("CumSum", "x first -> y"),
            inputs=[tensor("x", F32, *dims)],
            outputs=[tensor("y", F32, *dims)],
            constants={"first": np.array(0)},
        ),
        config=DYNAMIC.format(x=io("x", -1, 2), y=io("y", -1, 2)),
        batch={"x": 1, "y": 1},
        outputs=("y",),
        sequences=sent("x", F32, (3, 1, 2), (2, 2, 2), (3, 1, 2)),
    )


def summing(
    name: str, *nodes: NodeProto, dtype=F32, dims=(None, None), state=(None,), lane: int | None = 0, inputs=(),
    constants: dict | None = None, result: str = "sums", given: dict | None = None,
) -> Case:  # fmt: skip
    """y = the sums of x over its first axis, which is the time, and what the nodes make of them; a state n counts."""
    kind = "FP32" if dtype is F32 else "INT64"
    others = [io("k", 1, kind="INT64")] if inputs else []
    axes = {"x": 1, "y": 1, "n": lane, "n_out": lane} | ({"k": None} if inputs else {})
    return Case(
        name=name,
        model=model(
            op("CumSum", "x first -> sums"),
            *nodes,
            op("Identity", f"{result} -> y"),
            op("Add", "n one -> n_out"),
            inputs=[tensor("x", dtype, *dims), tensor("n", F32, *state), *inputs],
            outputs=[tensor("y", dtype, *dims), tensor("n_out", F32, *state)],
            constants={"first": np.array(0), "one": np.array([1], F32)} | (constants or {}),
        ),
        config=full(", ".join([io("x", -1, kind=kind), *others]), io("y", -1, kind=kind), batch=4),
        batch=axes,
        outputs=("y",),
        sequences=sent("x", dtype, (3, 1), (3, 1), (2, 1), **(given or {})),
        states={"n": "n_out"},
        initial={"n": np.zeros(1 if lane is not None else state, F32)},
    )


DIVISION = {
    "inputs": (tensor("k", I64, 1),),
    "given": {"k": np.array([2])},
    "constants": {"whole": np.array([64])},
    "result": "scaled",
}
DIVIDE = [op("Div", "whole k -> part"), op("Cast", "part -> factor", to=1), op("Mul", "sums factor -> scaled")]
NOISE = [
    op("RandomUniform", "-> random", shape=[1]), op("Mul", "random little -> noise"), op("Add", "sums noise -> noisy"),
]  # fmt: skip

# Batch fixed to 1, and one length that only caches have: a name of many tensors that is no batch.
DECODER = """
    in x f32 [B=1, T={steps}, 8]
    state past_0 -> present_0 f32 [B=1, 2, P={past}, 4] -> [B=1, 2, P+T={total}, 4]
    state past_1 -> present_1 f32 [B=1, 2, P={past}, 4] -> [B=1, 2, P+T={total}, 4]
    out y f32 [B=1, T={steps}, 8]"""
ONE_TOKEN = DECODER.replace("T={steps}", "T=1")

# Six tensors have the name of the time, four that of the batch.
MANY_TIME = """
    in x f32 [T=frames, B=B, 8]
    in x2 f32 [T=frames, B=B, 4]
    state h -> h_out f32 [2, B=B, 8]
    out y f32 [T=frames, B=, 8]
    out y2 f32 [T=frames, B=, 8]
    out y3 f32 [T=frames, B=, 8]
    out y4 f32 [T=frames, B=, 8]"""
MANY_TIME_OUTPUTS = ", ".join(io(name, -1, 8) for name in ("y", "y2", "y3", "y4"))
MANY_TIME_CONFIG = full(f"{io('x', -1, 8)}, {io('x2', -1, 4)}", MANY_TIME_OUTPUTS)
PAST_LISTED = f"state [ {listed('past', 'present', -1, 8)} ]"

CONV = """
    in x f32 [B=N, T=T, 8]
    state h -> h_out f32 [B=N, 8] -> [B=Addh_out_dim_0, 8]
    out y f32 [B=Addy_dim_0, T'=Addy_dim_1, 8]"""

TIME_IS_N = """
    in x f32 [T=n, B=i]
    in speaker f32 [3, B=i]
    state window -> window_out f32 [3, 2, B=i]
    state h -> h_out f32 [1, B=i, 3]
    out y f32 [3, B=i]"""
TIME_AFTER = """
    in x f32 [B=i, T=n]
    in frame i64 []
    state h -> h_out f32 [1, B=i, 8]
    out y f32 [8, T=n, B=i]"""

# One state has no batch axis, so that requests run one at a time; the others have one, which begins with one lane.
WITH_SHARED = """
    in x f32 [B={x}, 8, 3]
    state all -> all_out f32 [8]
    state mem -> mem_out f32 [B={m}, 8] -> [B={o}, 8]
    state count -> count_out i64 [B={c}]
    out y f32 [B={y}, 8, 3]"""
WITH_SHARED_LISTS = WITH_SHARED.format(
    x="x_dynamic_axes_1", m="mem_dynamic_axes_1", o="mem_out_dynamic_axes_1", c="count_dynamic_axes_1", y="y_dynamic_axes_1"
)

TIME_WITH_SHARED = """
    in x f32 [T={a}1, B={a}2, 2]
    in speaker f32 [B={b}1, 2]
    state mem -> mem_out f32 [2, B={c}1] -> [2, B={d}1]
    state all -> all_out f32 [2]
    out y f32 [T={e}1, B={e}2, 2]"""
TIME_WITH_SHARED_LISTS = TIME_WITH_SHARED.format(**{
    short: f"{name}_dynamic_axes_" for short, name in {"a": "x", "b": "speaker", "c": "mem", "d": "mem_out", "e": "y"}.items()
})  # fmt: skip


def mean_with_shared(name: str, label: str, config: str = THREE_LINES, **more) -> Case:
    """With no lanes in its state it would run, and say nothing: 0 and 1 are broadcast to 0."""

    def dims(of: str) -> tuple[int, str | None]:
        return 3, label.format(of) or None

    return Case(
        name=name,
        model=model(
            op("Mul", "mem half -> old"),
            op("Add", "old x -> mem_out"),
            op("Add", "x mem_out -> sum"),
            op("ReduceMean", "sum -> mean", axes=[1], keepdims=0),
            op("Mul", "all half -> before"),
            op("Add", "before mean -> all_out"),
            op("Unsqueeze", "all_out one -> column"),
            op("Add", "sum column -> y"),
            inputs=[tensor("x", F32, *dims("x")), tensor("mem", F32, *dims("mem")), tensor("all", F32, 3)],
            outputs=[tensor("y", F32, *dims("y")), tensor("mem_out", F32, *dims("mem_out")), tensor("all_out", F32, 3)],
            constants={"half": F32(0.5), "one": np.array([1])},
        ),
        config=config,
        batch={"x": 1, "mem": 1, "all": None, "y": 1, "mem_out": 1, "all_out": None},
        outputs=("y",),
        sequences=sent("x", F32, (3, 1), (3, 1), (3, 1)),
        states={"mem": "mem_out", "all": "all_out"},
        initial={"mem": np.zeros((3, 1), F32), "all": np.zeros(3, F32)},
        **more,
    )


def gru_with_shared(name: str, batch: str, config: str = THREE_LINES) -> Case:
    """ONNX Runtime 1.31 ends the process when a GRU or LSTM runs with an extent of 0, so its state must have a lane."""
    return Case(
        name=name,
        model=model(
            op("Unsqueeze", "x zero -> step"),
            op("GRU", "step w r . . h -> every h_out", hidden_size=4),
            op("Squeeze", "h_out zero -> hidden"),
            op("ReduceMean", "hidden -> mean", axes=[0], keepdims=0),
            op("Add", "all mean -> all_out"),
            op("Add", "hidden all_out -> y"),
            inputs=[tensor("x", F32, batch, 4), tensor("h", F32, 1, batch, 4), tensor("all", F32, 4)],
            outputs=[tensor("y", F32, batch, 4), tensor("h_out", F32, 1, batch, 4), tensor("all_out", F32, 4)],
            constants={
                "zero": np.array([0]),
                "w": np.random.default_rng(1).standard_normal((1, 12, 4)).astype(F32),
                "r": np.random.default_rng(2).standard_normal((1, 12, 4)).astype(F32),
            },
        ),
        config=config,
        batch={"x": 0, "h": 1, "all": None, "y": 0, "h_out": 1, "all_out": None},
        outputs=("y",),
        sequences=sent("x", F32, (1, 4), (1, 4), (1, 4)),
        states={"h": "h_out", "all": "all_out"},
        initial={"h": np.zeros((1, 1, 4), F32), "all": np.zeros(4, F32)},
    )


# The name of the batch is known as one; the length that the cache has afterwards is in front.
PRESENT_IN_FRONT = """
    in x f32 [B=i, T=n]
    state past -> present f32 [P=p, 2, B=i] -> [P+T=q, 2, B=i]
    state flag -> flag_out bool [B=i, 1]
    out y f32 [B=i, 2, T=n]"""

LISTED = [
    family("time_is_n", TIME_IS_N, full(f"{io('x', -1)}, {io('speaker', 3)}", io("y", 3))),
    family("time_is_n_after", TIME_AFTER, full(io("x", -1), io("y", 8, -1)), parameters={"constant_inputs": "frame = 3"},
           constants={"frame": np.array(3)}),
    family("time_is_n_3_lines", TIME_IS_N),
    family("lists_with_shared", WITH_SHARED_LISTS),
    family("strange_with_shared", WITH_SHARED.format(x="rows", m="rows", o="rows", c="rows", y="rows")),
    mean_with_shared("nameless_with_shared", ""),
    mean_with_shared("nameless_with_shared_io", "", full(io("x", 3), io("y", 3))),
    mean_with_shared("listed_with_shared", "{}_dynamic_axes_1"),
    mean_with_shared("named_with_shared", "batch", refused=False),
    family("time_with_shared", TIME_WITH_SHARED_LISTS),
    family("time_with_shared_nameless", re.sub("=[^],]*", "=", TIME_WITH_SHARED_LISTS)),
    gru_with_shared("gru_with_shared", "batch"),
    gru_with_shared("gru_with_shared_strange", "rows"),
    gru_with_shared("gru_with_shared_s0", "s77"),
    gru_with_shared("gru_with_shared_io", "rows", full(io("x", 4), io("y", 4))),
    family("present_in_front", PRESENT_IN_FRONT),
    family("present_in_front_nameless", PRESENT_IN_FRONT.replace("=i", "=").replace("=n", "=").replace("=p", "=")),
    everywhere("tie_frames_batch", "frames", "batch_size", refused=False),
    everywhere("tie_tb", "T", "B", refused=False),
    everywhere("tie_s", "s17", "s53"),
    everywhere("tie_n_a", "a", "n"),
    everywhere("tie_time_batch_io", "time", "batch", full(io("x", -1, 8), io("y", -1, 8)), refused=False),
    everywhere("tie_time_batch_listed", "time", "batch", full(io("x", -1, 8), io("y", -1, 8), PAST_LISTED),
               parameters={"initial_states": "past = 0[0,8]"}, refused=False),
    family("many_time", MANY_TIME),
    family("many_time_io", MANY_TIME, MANY_TIME_CONFIG),
    family("b1_decoder_kvlen", DECODER.format(steps="tokens", past="kv_len", total="kv_len"), lengths=(1, 2, 1)),
    family("b1_decoder_seq1", ONE_TOKEN.format(past="past_len", total="total_len"), lengths=(1, 1, 1)),
    stateless_sums("cumsum_time_batch", "time", "batch"),
    stateless_sums("cumsum_s0_s1", "s0", "s1"),
    stateless_sums("cumsum_nameless", None, None),
    summing("int_state_nameless", dtype=I64, dims=("time", "batch"), state=(None,)),
    summing("float_state_without_batch", dims=("time", "batch"), state=(1,), lane=None),
    summing("float_nameless", dims=(None, None)),
    summing("int_nameless", dtype=I64, dims=(None, None)),
    summing("division", *DIVIDE, **DIVISION),
    summing("noise", *NOISE, constants={"little": np.array([4e-6], F32)}, result="noisy"),
    family("conv_named_on_all", CONV.replace("B=Addh_out_dim_0", "B=N").replace("B=Addy_dim_0", "B=N"),
           kernel=5, stride=2, lengths=(9, 9, 12), refused=False),
    family("conv_nameless", CONV.replace("=N", "=").replace("=Addh_out_dim_0", "=").replace("=Addy_dim_0", "=")
           .replace("=Addy_dim_1", "=").replace("T=T", "T="), kernel=5, stride=2, lengths=(9, 9, 12)),
    family("conv_named_on_inputs", CONV, kernel=5, stride=2, lengths=(9, 9, 12)),
    family("conv_named_on_inputs_io", CONV, full(io("x", -1, 8), io("y", -1, 8)), kernel=5, stride=2, lengths=(9, 9, 12)),
    family("conv_named_on_inputs_pairs", CONV, full(io("x", 33, 8), io("y", 15, 8)), kernel=5, stride=2, lengths=(33, 33),
           parameters={"state_pairs": "<<<h, h_out>>>"}),
]  # fmt: skip
