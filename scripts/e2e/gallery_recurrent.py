"""The signatures of recurrent networks, convolutions and predictors as torch and toolkits for robots export them."""

import numpy as np

from gallery_names import full, io
from randomgraph import Graph
from servedcase import Case
from signatures import THREE_LINES, Signature, family

F32 = np.float32
HC = {"state_pairs": "<<<h0, hn>>> <<<c0, cn>>>"}


def recurrent(name: str, text: str, *, cells: int = 2, gru: bool = False, config: str = THREE_LINES, **more) -> Case:
    """Real LSTM or GRU operators, one for each layer; the input is [time, batch, 8], the states are [layers, batch, 8]."""
    signature = Signature.parse(text)
    g = Graph(np.random.default_rng(8))
    x, (states, y) = signature.inputs[0], (signature.states, signature.outputs[0])
    kind, gates = ("GRU", 3) if gru else ("LSTM", 4)
    value = g.op("Identity", x.name)
    after: list[list[str]] = [[] for _ in states]
    for layer in range(cells):
        parts = [g.op("Slice", into.name, g.constant([layer]), g.constant([layer + 1]), g.constant([0])) for into, _ in states]
        weights = [g.numbers(1, gates * 8, 8, scale=0.4), g.numbers(1, gates * 8, 8, scale=0.4)]
        every = g.op(kind, value, *weights, "", "", *parts, hidden_size=8)
        for at in range(len(states)):
            g.nodes[-1].output.append(f"layer_{layer}_state_{at}")
            after[at].append(f"layer_{layer}_state_{at}")
        value = g.op("Squeeze", every, g.constant([1]))
    g.op("Identity", value, result=y.name)
    for (_, out), parts in zip(states, after, strict=True):
        g.op("Concat", *parts, axis=0, result=out.name)
    model = g.finished([t.info() for t in signature.all_inputs], [t.info() for t in signature.all_outputs])
    return family(name, text, config, model=model, **more)


def lstm(time: str, batch: str, names: str = "x y h0 hn c0 cn") -> str:
    x, y, h, hn, c, cn = names.split()
    return f"""
        in {x} f32 [T={time}, B={batch}, 8]
        state {h} -> {hn} f32 [2, B={batch}, 8]
        state {c} -> {cn} f32 [2, B={batch}, 8]
        out {y} f32 [T={time}, B={batch}, 8]"""


LSTM_LISTS = """
    in x f32 [T=x_dynamic_axes_1, B=x_dynamic_axes_2, 8]
    state h0 -> hn f32 [2, B=h0_dynamic_axes_1, 8] -> [2, B=hn_dynamic_axes_1, 8]
    state c0 -> cn f32 [2, B=c0_dynamic_axes_1, 8] -> [2, B=cn_dynamic_axes_1, 8]
    out y f32 [T=y_dynamic_axes_1, B=y_dynamic_axes_2, 8]"""
GRU = """
    in x f32 [T={time}, B={batch}, 8]
    state h -> h_out f32 [3, B={batch}, 8]
    out y f32 [T={time}, B={batch}, 8]"""

CONV_APART = """
    in x f32 [B=batch, 8, T=time]
    state cache_0 -> new_cache_0 f32 [B=batch, 8, 2]
    state cache_1 -> new_cache_1 f32 [B=batch, 8, 4]
    out y f32 [B=batch, 8, T=time]"""
CONV_STACKED = """
    in x f32 [B=batch, 6, T=time]
    state cache -> cache_out f32 [3, B=batch, 6, 2]
    out y f32 [B=batch, 6, T=time]"""
CONV_DYNAMO = """
    in x f32 [B=s77, 6, T=s27]
    state arg0 -> slice_1 f32 [B=s77, 6, 2]
    state arg1 -> slice_2 f32 [B=s77, 6, 2]
    out add_3 f32 [B=s77, 6, T=s27]"""

PREDICTOR = """
    in targets i64 [B=batch, 1]
    state h_in -> h_out f16 [2, B=batch, 8]
    state count_in -> count_out i64 [B=batch]
    state blank_in -> blank_out bool [B=batch, 1]
    out g f32 [B=batch, 1, 8]"""
ONLY_STATES = """
    in x i64 [B=batch, 1]
    state count -> count_out i64 [B=batch, 2]"""
TF_NAMES = """
    in serving_x:0 f32 [B=unk__10, T=unk__11, 4]
    state serving_state:0 -> Identity_1:0 f32 [B=unk__12, 8] -> [B=unk__13, 8]
    out Identity:0 f32 [B=unk__14, 4]"""

POLICY_LSTM = """
    in obs f32 [B=1, 12]
    state h_in -> h_out f32 [1, B=1, 16]
    state c_in -> c_out f32 [1, B=1, 16]
    out actions f32 [B=1, 4]"""
POLICY_GRU = """
    in obs f32 [B=1, 12]
    state h_in -> h_out f32 [1, B=1, 16]
    out actions f32 [B=1, 4]"""
PPO = """
    in observation f32 [B=batch_size, 6]
    in episode_starts f32 [B=batch_size]
    state hidden_in -> hidden_out f32 [1, B=batch_size, 16]
    state cell_in -> cell_out f32 [1, B=batch_size, 16]
    out action f32 [B=batch_size, 2]
    out value f32 [B=batch_size, 1]"""

LISTED = [
    recurrent("torch_lstm", lstm("time", "batch"), parameters=HC, refused=False),
    recurrent("torch_lstm_3_lines", lstm("time", "batch"), decides=("state_pairs",), remedy=HC),
    recurrent("torch_lstm_lists", LSTM_LISTS, parameters=HC),
    recurrent("torch_lstm_no_axis_names", lstm("", ""), parameters=HC),
    recurrent("torch_lstm_no_names", lstm("", "", "onnx::Slice_0 186 onnx::Slice_1 184 onnx::Slice_2 185"),
              parameters={"state_pairs": "<<<onnx::Slice_1, 184>>> <<<onnx::Slice_2, 185>>>"}),
    recurrent("dynamo_lstm", lstm("s27", "s77"), parameters=HC),
    recurrent("torch_lstm_io", lstm("time", "batch"), config=full(io("x", -1, 8), io("y", -1, 8)), parameters=HC,
              refused=False),
    recurrent("torch_gru", GRU.format(time="time", batch="batch"), cells=3, gru=True, refused=False),
    recurrent("dynamo_gru", GRU.format(time="s27", batch="s77"), cells=3, gru=True),
    recurrent("torch_gru_no_axis_names", GRU.format(time="", batch=""), cells=3, gru=True),
    recurrent("torch_gru_batch_of_1", GRU.format(time="time", batch="1"), cells=3, gru=True),
    family("conv_caches_apart", CONV_APART, kernel=1, refused=False),
    family("conv_caches_stacked", CONV_STACKED, refused=False),
    family("conv_dynamo", CONV_DYNAMO, parameters={"state_pairs": "<<<arg0, slice_1>>> <<<arg1, slice_2>>>"}),
    family("conv_batch_of_1", CONV_APART.replace("B=batch", "B=1")),
    family("rnnt_predictor", PREDICTOR, lengths=(1, 1, 1), refused=False),
    family("only_states", ONLY_STATES, lengths=(1, 1, 1), refused=False),
    family("tf_names", TF_NAMES, parameters={"state_pairs": "<<<serving_state:0, Identity_1:0>>>"}),
    family("rsl_rl_gru", POLICY_GRU, lengths=(1, 1, 1), refused=False),
    family("recurrent_ppo", PPO, lengths=(1, 1, 1), refused=False),
]  # fmt: skip
