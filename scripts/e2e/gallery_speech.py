"""The signatures of streaming models for speech and pictures, as their toolkits export them."""

import numpy as np

from gallery_names import full, io, listed
from signatures import family

RATE = np.array(16000)

SILERO_V5 = """
    in input f32 [B=, T=]
    in sr i64 []
    state state -> stateN f32 [2, B=, 128] -> [X=, B=, Y=]
    out output f32 [B=, 1]"""
SILERO_V4 = """
    in input f32 [B=, T=]
    in sr i64 []
    state h -> hn f32 [2, B=, 64] -> [X=, B=, Y=]
    state c -> cn f32 [2, B=, 64] -> [X=, B=, Y=]
    out output f32 [B=, 1]"""
SILERO_16K = SILERO_V5.replace("    in sr i64 []\n", "")
SILERO_SEQUENCE = """
    in input f32 [T=sequence_length, 576]
    state h -> hn f32 [1, B=1, 128]
    state c -> cn f32 [1, B=1, 128]
    out speech_probs f32 [T=sequence_length, 1]"""
SILERO = {"constant_inputs": "sr = 16000"}
# The file says that its batch is dynamic, and has a Reshape in it that says otherwise.
TEN_VAD = """
    in input_1 f32 [B=, 3, 41]
    state input_2 -> output_2 f32 [B=, 64]
    state input_3 -> output_3 f32 [B=, 64]
    state input_6 -> output_6 f32 [B=, 64]
    state input_7 -> output_7 f32 [B=, 64]
    out output_1 f32 [B=, 1, 1]"""
TEN_PAIRS = {"state_pairs": " ".join(f"<<<input_{n}, output_{n}>>>" for n in (2, 3, 6, 7))}
DTLN = """
    in input_2 f32 [1, B=1, 257]
    state input_3 -> tf_op_layer_stack_2 f32 [B=1, 2, 128, 2]
    out activation_2 f32 [1, B=1, 257]"""
GTCRN = """
    in mix f32 [B=1, 257, 1, 2]
    state conv_cache -> conv_cache_out f32 [2, B=1, 16, 16, 33]
    state tra_cache -> tra_cache_out f32 [2, 3, 1, B=1, 16]
    state inter_cache -> inter_cache_out f32 [2, B=1, 33, 16]
    out enh f32 [B=1, 257, 1, 2]"""
NSNET2 = """
    in input f32 [B=batch, T=frames, 161]
    out output f32 [B=batch, T=frames, 161]"""

WENET_GPU = """
    in chunk_xs f32 [B=B, T=T, 80]
    in chunk_lens i32 [B=B]
    state offset -> r_offset i64 [B=B, 1]
    state att_cache -> r_att_cache f32 [B=B, 4, 2, 16, 8]
    state cnn_cache -> r_cnn_cache f32 [B=B, 4, 16, 7]
    state cache_mask -> r_cache_mask f32 [B=B, 1, 16]
    out log_probs f32 [B=B, 16, 10]
    out log_probs_idx i64 [B=B, 16, 10]
    out chunk_out_lens i32 [B=B]"""
WENET_GPU_STATES = ", ".join([
    listed("offset", "r_offset", 1, kind="INT64", zeros=True), listed("att_cache", "r_att_cache", 4, 2, 16, 8, zeros=True),
    listed("cnn_cache", "r_cnn_cache", 4, 16, 7, zeros=True), listed("cache_mask", "r_cache_mask", 1, 16, zeros=True),
])  # fmt: skip
WENET_GPU_CONFIG = full(
    f'{io("chunk_xs", -1, 80)}, {{ name: "chunk_lens" data_type: TYPE_INT32 dims: [ 1 ] reshape: {{ shape: [ ] }} }}',
    f"{io('log_probs', 16, 10)}, {io('log_probs_idx', 16, 10, kind='INT64')}, "
    '{ name: "chunk_out_lens" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } }',
    f"state [ {WENET_GPU_STATES} ]",
)

ZIPFORMER = """
    in x f32 [B=N, 45, 80]
    state cached_key_0 -> new_cached_key_0 f32 [16, B=N, 8]
    state cached_nonlin_attn_0 -> new_cached_nonlin_attn_0 f32 [1, B=N, 16, 8]
    state cached_val1_0 -> new_cached_val1_0 f32 [16, B=N, 4]
    state cached_conv1_0 -> new_cached_conv1_0 f32 [B=N, 8, 15]
    state embed_states -> new_embed_states f32 [B=N, 8, 3, 19]
    state processed_lens -> new_processed_lens i64 [B=N]
    out encoder_out f32 [B=N, 16, 32]"""
CONV_EMFORMER = """
    in x f32 [B=N, T=T, 80]
    state layer0_0 -> new_layer0_0 f32 [4, B=N, 32] -> [4, B=Concatnew_layer0_0_dim_1, 32]
    state layer0_1 -> new_layer0_1 f32 [8, B=N, 32] -> [8, B=Slicenew_layer0_1_dim_1, 32]
    state layer0_2 -> new_layer0_2 f32 [8, B=N, 32] -> [8, B=Slicenew_layer0_2_dim_1, 32]
    state layer0_3 -> new_layer0_3 f32 [B=N, 32, 30] -> [B=Slicenew_layer0_3_dim_0, 32, 30]
    out encoder_out f32 [B=Transposeencoder_out_dim_0, T'=Transposeencoder_out_dim_1, 32]"""
ICEFALL_LSTM = """
    in x f32 [B=N, T=T, 80]
    state h -> next_h f32 [4, B=N, 16]
    state c -> next_c f32 [4, B=N, 32]
    out encoder_out f32 [B=N, T'=T_OUT, 16]"""


PARAFORMER = """
    in enc f32 [B=batch_size, T=enc_length, 32]
    in enc_len i32 [B=batch_size]
    in acoustic_embeds f32 [B=batch_size, K=token_length, 32]
    in acoustic_embeds_len i32 [B=batch_size]
    state in_cache_0 -> out_cache_0 f32 [B=batch_size, 32, 10] -> [B=Sliceout_cache_0_dim_0, 32, 10]
    state in_cache_1 -> out_cache_1 f32 [B=batch_size, 32, 10] -> [B=Sliceout_cache_1_dim_0, 32, 10]
    out logits f32 [B=Addlogits_dim_0, T=Addlogits_dim_1, 40]
    out sample_ids i64 [B=ArgMaxsample_ids_dim_0, T=ArgMaxsample_ids_dim_1]"""
SCALAR = '{{ name: "{}" data_type: TYPE_INT32 dims: [ 1 ] reshape: {{ shape: [ ] }} }}'
PARAFORMER_INPUTS = [
    io("enc", -1, 32), SCALAR.format("enc_len"), io("acoustic_embeds", -1, 32), SCALAR.format("acoustic_embeds_len"),
]  # fmt: skip
PARAFORMER_STATES = ", ".join(listed(f"in_cache_{n}", f"out_cache_{n}", 32, 10, zeros=True) for n in (0, 1))
PARAFORMER_CONFIG = full(
    ", ".join(PARAFORMER_INPUTS),
    f"{io('logits', -1, 40)}, {io('sample_ids', -1, kind='INT64')}",
    f"state [ {PARAFORMER_STATES} ]",
)
LFR = """
    in chunk_xs f32 [B=batch, 61, 80]
    state cache -> cache_out f32 [B=batch, 10, 56]
    state offset -> offset_out i64 [B=batch, 1]
    out chunk_xs_out f32 [B=batch, 10, 56]"""
LFR_STATES = ", ".join([
    listed("cache", "cache_out", 10, 56, zeros=True), listed("offset", "offset_out", 1, kind="INT64", zeros=True),
])  # fmt: skip
LFR_CONFIG = full(io("chunk_xs", 61, 80), io("chunk_xs_out", 10, 56), f"state [ {LFR_STATES} ]")
FSMN = """
    in speech f32 [B=batch_size, T=feats_length, 40]
    state in_cache0 -> out_cache0 f32 [B=batch_size, 16, 19, 1]
    state in_cache1 -> out_cache1 f32 [B=batch_size, 16, 19, 1]
    state in_cache2 -> out_cache2 f32 [B=batch_size, 16, 19, 1]
    state in_cache3 -> out_cache3 f32 [B=batch_size, 16, 19, 1]
    out logits f32 [B=batch_size, T=logits_length, 24]"""

LISTED = [
    family("silero_v5", SILERO_V5, kernel=256, stride=128, lengths=(576, 576), parameters=SILERO, constants={"sr": RATE}),
    family("silero_v5_documented", SILERO_V5, full(io("input", 576), io("output", 1)), kernel=256, stride=128,
           lengths=(576, 576), parameters=SILERO, constants={"sr": RATE}, refused=False),
    family("silero_v6_16k", SILERO_16K, kernel=256, stride=128, lengths=(576, 576)),
    family("silero_v4", SILERO_V4, kernel=64, stride=64, lengths=(512, 512), parameters=SILERO, constants={"sr": RATE}),
    family("silero_sequence", SILERO_SEQUENCE, refused=False),
    family("ten_vad", TEN_VAD, parameters=TEN_PAIRS, solo=True),
    family("dtln", DTLN, parameters={"state_pairs": "<<<input_3, tf_op_layer_stack_2>>>"}, refused=False),
    family("nsnet2", NSNET2, 'backend: "stateful"', refused=False),
    family("wenet_gpu", WENET_GPU, WENET_GPU_CONFIG, refused=False),
    family("icefall_conv_emformer", CONV_EMFORMER, kernel=5, stride=2, lengths=(19, 19)),
    family("icefall_lstm", ICEFALL_LSTM, kernel=5, stride=2, lengths=(9, 9), refused=False),
    family("paraformer_decoder", PARAFORMER, PARAFORMER_CONFIG, extents={"K": 4}, refused=False),
    family("paraformer_decoder_3_lines", PARAFORMER, extents={"K": 4}),
    family("lfr_cmvn_pe", LFR, LFR_CONFIG, refused=False),
    family("fsmn_vad", FSMN, refused=False),
]  # fmt: skip
