"""Small models whose axes are named as exporters name them badly: what was seen to mix or lose sequences."""

import numpy as np

from randomgraph import Graph
from servedcase import Case
from signatures import THREE_LINES, Tensor, family

F32 = np.float32


def full(inputs: str, outputs: str, more: str = "", batch: int = 8) -> str:
    """A configuration that is written out."""
    return f"""
backend: "stateful"
max_batch_size: {batch}
input [ {inputs} ]
output [ {outputs} ]
sequence_batching {{ oldest {{ max_candidate_sequences: 32 max_queue_delay_microseconds: 5000 }} {more} }}
instance_group [{{ kind: KIND_CPU }}]
"""


def io(name: str, *dims: int, kind: str = "FP32") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {", ".join(map(str, dims))} ] }}'


def listed(name: str, output: str, *dims: int, kind: str = "FP32", zeros: bool = False) -> str:
    """An element of sequence_batching.state."""
    extents = ", ".join(map(str, dims))
    initial = f'initial_state {{ name: "z" data_type: TYPE_{kind} dims: [ {extents} ] zero_data: true }}' if zeros else ""
    return f'{{ input_name: "{name}" output_name: "{output}" data_type: TYPE_{kind} dims: [ {extents} ] {initial} }}'


MINI = {
    "inputs_named": """
        in x f32 [B=batch, T=time, 8]
        state mem -> mem_out f32 [B=batch, 4, 8] -> [B=Concatmem_out_dim_0, 4, 8]
        out y f32 [B=ReduceMeany_dim_0, 8]""",
    "lists": """
        in x f32 [B=x_dynamic_axes_1, T=x_dynamic_axes_2, 8]
        state mem -> mem_out f32 [B=mem_dynamic_axes_1, 4, 8] -> [B=mem_out_dynamic_axes_1, 4, 8]
        out y f32 [B=y_dynamic_axes_1, 8]""",
    "names_differ": """
        in x f32 [B=x_batch, T=x_time, 8]
        state mem -> mem_out f32 [B=mem_batch, 4, 8] -> [B=mem_out_batch, 4, 8]
        out y f32 [B=y_batch, 8]""",
}


def mini(name: str, names: str, config: str = THREE_LINES, **more) -> Case:
    """A convolution of 7 frames, a memory of 4."""
    return family(name, MINI[names], config, kernel=7, lengths=(10, 10, 10), **more)


MINI_IO = full(io("x", 10, 8), io("y", 8))
MINI_STATES = full(io("x", -1, 8), io("y", 8), f"state [ {listed('mem', 'mem_out', 4, 8, zeros=True)} ]")


def subsampling(name: str, names: str, config: str = THREE_LINES, cache: bool = False) -> Case:
    """A front end of 4 frames and a GRU, which wants its state to have as many lanes as its input has; lists of axes.

    cache: also the last frames, in a state whose length is dynamic in the file
    """
    g = Graph(np.random.default_rng(3))
    frames = g.op("Concat", "cache", "x", axis=1) if cache else "x"
    steps = g.convolve(frames, 16, 4, 2)
    steps = g.op("Transpose", steps, perm=[1, 0, 2])
    weights = [g.numbers(1, 48, 16, scale=0.3), g.numbers(1, 48, 16, scale=0.3)]
    every = g.op("GRU", steps, *weights, "", "", "h", hidden_size=16)
    g.nodes[-1].output.append("h_out")
    g.op("Transpose", g.op("Squeeze", every, g.constant([1])), perm=[1, 0, 2], result="y")
    if cache:
        g.op("Identity", g.last("x", 3), result="cache_out")

    def tensor(tensor: str, *dims: str) -> Tensor:
        at = iter(range(1, 9))
        label = {"lists": lambda: f"{tensor}_dynamic_axes_{next(at)}", "none": lambda: ""}[names]
        return Tensor.parse(tensor, "f32", ", ".join(dim if dim.isdigit() else f"{dim}={label()}" for dim in dims))

    inputs = [tensor("x", "B", "T", "16"), tensor("h", "1", "B", "16")]
    outputs = [tensor("y", "B", "T'", "16"), tensor("h_out", "1", "B", "16")]
    if cache:
        inputs.append(tensor("cache", "B", "K", "16"))
        outputs.append(tensor("cache_out", "B", "K", "16"))
    random = np.random.default_rng(4)
    return Case(
        name=name,
        model=g.finished([t.info() for t in inputs], [t.info() for t in outputs]),
        config=config,
        batch={t.name: t.batch for t in inputs + outputs},
        outputs=("y",),
        sequences=[[{"x": random.standard_normal((1, 12, 16)).astype(F32)} for _ in range(3)] for _ in range(4)],
        states={"h": "h_out"} | ({"cache": "cache_out"} if cache else {}),
        initial={"h": np.zeros((1, 1, 16), F32)} | ({"cache": np.zeros((1, 0, 16), F32)} if cache else {}),
    )


NEMO = """
    in audio_signal f32 [B={a}1, 8, T={a}2]
    in length i64 [B={l}1]
    state cache_last_channel -> cache_last_channel_next f32 [B={c}1, 2, C={c}2, 8] -> [B={cn}1, 2, C={cn}2, 8]
    state cache_last_time -> cache_last_time_next f32 [B={t}1, 2, 8, K={t}2] -> [B={tn}1, 2, 8, K={tn}2]
    state cache_last_channel_len -> cache_last_channel_next_len i64 [B={n}1] -> [B={nn}1]
    out outputs f32 [B={o}1, 8, T'={o}2]
    out encoded_lengths i64 [B={e}1]"""
NEMO_LISTS = NEMO.format(**{
    short: f"{name}_dynamic_axes_" for short, name in {
        "a": "audio_signal", "l": "length", "c": "cache_last_channel", "cn": "cache_last_channel_next",
        "t": "cache_last_time", "tn": "cache_last_time_next", "n": "cache_last_channel_len",
        "nn": "cache_last_channel_next_len", "o": "outputs", "e": "encoded_lengths",
    }.items()
})  # fmt: skip
NEMO_PAIRS = (
    "<<<cache_last_channel, cache_last_channel_next>>> <<<cache_last_time, cache_last_time_next>>> "
    "<<<cache_last_channel_len, cache_last_channel_next_len>>>"
)
NEMO_BEGINS = "cache_last_channel = 0[2,6,8]; cache_last_time = 0[2,8,3]"


def nemo(name: str, text: str, **parameters: str) -> Case:
    """Without initial_states, its caches begin empty."""
    begins = {"C": 6, "K": 3} if "initial_states" in parameters else {"C": 0, "K": 0}
    return family(
        name, text, kernel=9, stride=2, lengths=(17, 17, 17), begins=begins, parameters=parameters,
        decides=("batch_axes", "state_pairs"), remedy={"state_pairs": NEMO_PAIRS, "batch_axes": "* = 0"},
    )  # fmt: skip


LISTED = [
    mini("mini_lists", "lists"),
    mini("mini_inputs_named", "inputs_named"),
    mini("mini_names_differ", "names_differ"),
    mini("mini_inputs_named_io", "inputs_named", MINI_IO),
    mini("mini_inputs_named_batch_axes_out", "inputs_named", parameters={"batch_axes": "y = 0"}),
    mini("mini_inputs_named_batch_axes_state", "inputs_named", parameters={"batch_axes": "mem_out = 0"}),
    mini("mini_inputs_named_state_list", "inputs_named", MINI_STATES, refused=False),
    mini("mini_lists_state_list", "lists", MINI_STATES, refused=False),
    nemo("nemo_lists_3line", NEMO_LISTS),
    nemo("nemo_lists_pairs", NEMO_LISTS, state_pairs=NEMO_PAIRS),
    nemo("nemo_lists_pairs_init", NEMO_LISTS, state_pairs=NEMO_PAIRS, initial_states=NEMO_BEGINS),
    subsampling("lists_subsampling_3line", "lists"),
    subsampling("lists_subsampling_io", "lists", full(io("x", -1, 16), io("y", -1, 16))),
    subsampling("lists_subsampling_io_time", "lists", full(io("x", 12, 16), io("y", 5, 16))),
    subsampling("lists_conv_cachedyn_3line", "lists", cache=True),
    subsampling("nameless_subsampling_3line", "none"),
]  # fmt: skip
