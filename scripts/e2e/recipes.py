"""The models of docs/recipes.md: the signatures of what toolkits export, each with the configuration that the page has
for it. test_gallery.py serves them."""

import io
import re

import numpy as np
from onnx import ModelProto, TensorShapeProto

from configs import blocks
from gallery_recurrent import POLICY_LSTM, PPO
from gallery_speech import GTCRN, LFR, TEN_VAD, ZIPFORMER
from gallery_text import GENAI, GPT2, T5_WITH_PAST, all_ones, merged_decoder
from servedcase import Case, Sequence, Tensors
from signatures import Signature, family
from tritonserver import ROOT

PAGE = "docs/recipes.md"
BLOCKS = dict(blocks(PAGE))
TABLE = re.findall(r"^\| (.*?) \|", (ROOT / PAGE).read_text().partition("## Three lines\n")[2], re.MULTILINE)

TORCH = """
    in x f32 [B=batch, T=time, 8]
    state h0 -> {hn} f32 [2, B=batch, 16]
    state c0 -> {cn} f32 [2, B=batch, 16]
    out {y} f32 [B=batch, T=time, 16]"""
DYNAMO = """
    in x f32 [B=batch, T=time, 8]
    state h0 -> hn f32 [1, B=batch, 16]
    state c0 -> cn f32 [1, B=batch, 16]
    out y f32 [B=batch, T=time, 16]"""
FAST_CONFORMER = """
    in audio_signal f32 [B=B, 80, T=T]
    in length i64 [B=B]
    state cache_last_channel -> cache_last_channel_next f32 [B=B, 2, 7, 16]
    state cache_last_time -> cache_last_time_next f32 [B=B, 2, 16, 4]
    state cache_last_channel_len -> cache_last_channel_next_len i64 [B=B]
    out outputs f32 [B=B, 16, T'=T_OUT]
    out encoded_lengths i64 [B=B]"""
TRANSDUCER = """
    in encoder_outputs f32 [B=batch, 16, T=time]
    in targets i32 [B=batch, U=length]
    in target_length i32 [B=batch]
    state input_states_1 -> output_states_1 f32 [1, B=batch, 16]
    state input_states_2 -> output_states_2 f32 [1, B=batch, 16]
    out outputs f32 [B=batch, T=time, U=length, 10]
    out prednet_lengths i32 [B=batch]"""
WENET_GPU = """
    in chunk_xs f32 [B=B, T=T, 80]
    in chunk_lens i32 [B=B]
    state offset -> r_offset i64 [B=B, 1]
    state att_cache -> r_att_cache f32 [B=B, 2, 4, 8, 16]
    state cnn_cache -> r_cnn_cache f32 [B=B, 2, 16, 7]
    state cache_mask -> r_cache_mask f32 [B=B, 1, 8]
    out log_probs f32 [B=B, T'=T_OUT, 10]
    out log_probs_idx i64 [B=B, T'=T_OUT, 10]
    out chunk_out f32 [B=B, T'=T_OUT, 16]
    out chunk_out_lens i32 [B=B]"""
WENET_CPU = """
    in chunk f32 [B=1, T=T, 80]
    in offset i64 []
    in required_cache_size i64 []
    in att_mask bool [1, 1, M=T_ADD_T_CACHE]
    state att_cache -> r_att_cache f32 [2, 4, P=T_CACHE, 16] -> [2, 4, P+T=T_CACHE, 16]
    state cnn_cache -> r_cnn_cache f32 [2, B=1, 16, 7]
    out output f32 [B=1, T=T, 16]"""
FSMN_VAD = """
    in speech f32 [B=1, T=feats_length, 400]
    state in_cache0 -> out_cache0 f32 [B=1, 8, 19, 1]
    state in_cache1 -> out_cache1 f32 [B=1, 8, 19, 1]
    state in_cache2 -> out_cache2 f32 [B=1, 8, 19, 1]
    state in_cache3 -> out_cache3 f32 [B=1, 8, 19, 1]
    out logits f32 [B=1, T=feats_length, 248]"""
DEEP_FILTER = """
    in input_frame f32 [480]
    in atten_lim_db f32 []
    state states -> new_states f32 [64]
    out enhanced_audio_frame f32 [480]
    out lsnr f32 [1]"""
MATTING = """
    in src f32 [B=batch_size, 3, H=height, W=width]
    in downsample_ratio f32 [1]
    state r1i -> r1o f32 [B=batch_size, C=channels, X=height, Y=width]
    state r2i -> r2o f32 [B=batch_size, C=channels, X=height, Y=width]
    out fgr f32 [B=batch_size, 3]
    out pha f32 [B=batch_size, 1]"""

ONE = np.ones(1, np.float32)
BEGINNING = np.arange(64, dtype=np.float32)  # of DeepFilterNet's state


def recipe(name: str, text: str, block: str = "recipe_three_lines", **more) -> Case:
    """A model that is served as the page says. The scheduler has time for requests to meet in a batch."""
    config = BLOCKS[block].replace("oldest {", "oldest { max_queue_delay_microseconds: 5000")
    return family(re.sub(r"\W+", "_", name).strip("_"), text, config, refused=False, **more)


def misdeclared() -> ModelProto:
    """hn and cn have one axis fewer than the file says."""
    made = Signature.parse(DYNAMO).model()
    for output in made.graph.output:
        if output.name in ("hn", "cn"):
            output.type.tensor_type.shape.dim.insert(0, TensorShapeProto.Dimension(dim_value=1))
    return made


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def episode_starts(requests: Sequence) -> Tensors:
    return {"episode_starts": ONE * (len(requests) == 1)}


def wenet_numbers(requests: Sequence) -> Tensors:
    """A cache of 4 chunks of 16, and all frames that were answered."""
    frames = sum(each["chunk"].shape[1] for each in requests[:-1])
    return {"offset": np.array(64 + frames), "required_cache_size": np.array(64)}


def merged() -> Case:
    """Only the first request brings what the encoder says; after that, as the page says, one frame is enough."""
    random = np.random.default_rng(6)

    def steps() -> Sequence:
        frames = [random.standard_normal((1, count, 8)).astype(np.float32) for count in (5, 1, 1)]
        return [{"input_ids": random.integers(0, 24, (1, 1)), "encoder_hidden_states": each} for each in frames]

    model = merged_decoder()
    states = {f"past_key_values.0.{of}.key": f"present.0.{of}.key" for of in ("decoder", "encoder")}
    return Case(
        name="recipe_merged_decoder",
        model=model,
        config=BLOCKS["recipe_merged_decoder"],
        batch={each.name: 0 for each in [*model.graph.input, *model.graph.output]} | {"use_cache_branch": None},
        outputs=("logits",),
        sequences=[steps() for _ in range(4)],
        states=states,
        initial={name: np.zeros((1, 2, 0, 4), np.float32) for name in states},
        given=lambda requests: {"use_cache_branch": np.array([len(requests) > 1])},
        updates={"past_key_values.0.encoder.key": lambda old, new: new if new.size else old},
        refused=False,
    )


# By the names that the page has for them.
THREE_LINES = {
    name: recipe(name, text, **more)
    for name, (text, more) in {
        "PyTorch: LSTM or GRU with `h0`, `c0`, `hn`, `cn`": (TORCH.format(y="y", hn="hn", cn="cn"), {}),
        "PyTorch's dynamo exporter, the same": (DYNAMO, {"model": misdeclared()}),
        "rsl_rl: recurrent policy": (POLICY_LSTM, {"lengths": (1, 1, 1)}),
        "optimum: decoder, `text-generation-with-past`": (GPT2, {}),
        "optimum: `decoder_with_past` of T5 or BART": (T5_WITH_PAST, {"lengths": (1, 1, 1), "extents": {"E": 6}}),
        "onnxruntime-genai": (GENAI, {}),
        "icefall, sherpa: streaming Zipformer, LSTM": (ZIPFORMER, {}),
        "NeMo: cache-aware FastConformer": (FAST_CONFORMER, {}),
        "NeMo: `decoder_joint`": (TRANSDUCER, {"extents": {"U": 1}}),
        "WeNet: `export_onnx_gpu.py`": (WENET_GPU, {}),
        "FunASR: FSMN VAD": (FSMN_VAD, {}),
        "FunASR: `lfr_cmvn_pe`": (LFR, {}),
        "TEN VAD": (TEN_VAD, {"solo": True}),
        "GTCRN": (GTCRN, {}),
    }.items()
}
NEED_MORE = {
    name: recipe(name, text, name, **more)
    for name, (text, more) in {
        "recipe_lost_names": (TORCH.format(y="add", hn="getitem_1", cn="getitem_2"), {}),
        "recipe_masked_decoder": (GENAI, {"filled": ("attention_mask",), "given": all_ones}),
        "recipe_wenet_cpu": (
            WENET_CPU,
            {"filled": ("offset", "required_cache_size"), "given": wenet_numbers, "begins": {"P": 64}, "extents": {"M": 69}},
        ),
        "recipe_matting": (
            MATTING,
            {"constants": {"downsample_ratio": 0.25 * ONE}, "extents": {"H": 8, "W": 6}, "begins": {"C": 1, "X": 1, "Y": 1}},
        ),
        "recipe_deep_filter": (
            DEEP_FILTER,
            {
                "constants": {"atten_lim_db": np.array(0, np.float32)},
                "initial": {"states": BEGINNING},
                "files": {"initial_state/states.npy": npy(BEGINNING)},
            },
        ),
        "recipe_recurrent_ppo": (
            PPO.replace("observation ", "obs "),
            {"filled": ("episode_starts",), "given": episode_starts, "lengths": (1, 1, 1)},
        ),
        "recipe_int8": (ZIPFORMER, {"int8": True}),
    }.items()
} | {"recipe_merged_decoder": merged()}
LISTED = [*THREE_LINES.values(), *NEED_MORE.values()]
