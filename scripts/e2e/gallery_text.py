"""The signatures of text decoders as optimum and onnxruntime-genai export them."""

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from gallery_names import full, io
from graphs import model, op, tensor
from randomgraph import Graph
from servedcase import Case, Sequence, Tensors
from signatures import THREE_LINES, family

F32, I64 = np.float32, np.int64

CACHES = """
    state past_key_values.0.key -> present.0.key f32 [B={b}, 2, P={p}, 4] -> [B={b}, 2, P+T={t}, 4]
    state past_key_values.0.value -> present.0.value f32 [B={b}, 2, P={p}, 4] -> [B={b}, 2, P+T={t}, 4]
    state past_key_values.1.key -> present.1.key f32 [B={b}, 2, P={p}, 4] -> [B={b}, 2, P+T={t}, 4]
    state past_key_values.1.value -> present.1.value f32 [B={b}, 2, P={p}, 4] -> [B={b}, 2, P+T={t}, 4]"""
OPTIMUM = {"b": "batch_size", "p": "past_sequence_length", "t": "past_sequence_length + sequence_length"}
GPT2 = """
    in input_ids i64 [B=batch_size, T=sequence_length]
    in attention_mask i64 [B=batch_size, P+T=past_sequence_length + sequence_length]
    in position_ids i64 [B=batch_size, T=sequence_length]
    out logits f32 [B=batch_size, T=sequence_length, 24]""" + CACHES.format(**OPTIMUM)
GPT2_INPUTS = ("input_ids", "attention_mask", "position_ids")
GPT2_CONFIG = full(", ".join(io(name, -1, kind="INT64") for name in GPT2_INPUTS), io("logits", -1, 24))
LLAMA_DYNAMO = """
    in input_ids i64 [B=s77, T=s27]
    in attention_mask i64 [B=s77, P+T=s27 + s41]
    out logits f32 [B=s77, T=s27, 24]""" + CACHES.format(b="s77", p="s41", t="s27 + s41")
LISTS = """
    in input_ids i64 [B=input_ids_{l}1, T=input_ids_{l}2]
    state past_0 -> present_0 f32 [B=past_0_{l}1, 2, P=past_0_{l}2, 4] -> [B=present_0_{l}1, 2, P+T=present_0_{l}2, 4]
    out logits f32 [B=logits_{l}1, T=logits_{l}2, 24]""".format(l="dynamic_axes_")
GENAI = """
    in input_ids i64 [B=batch_size, T=sequence_length]
    in attention_mask i64 [B=batch_size, P+T=total_sequence_length]
    out logits f32 [B=batch_size, T=sequence_length, 24]""" + CACHES.format(
    b="batch_size", p="past_sequence_length", t="total_sequence_length"
)
T5_WITH_PAST = """
    in encoder_attention_mask i64 [B=batch_size, E=encoder_sequence_length]
    in input_ids i64 [B=batch_size, T=decoder_sequence_length]
    in past_key_values.0.encoder.key f32 [B=batch_size, 2, E=encoder_sequence_length_out, 4]
    in past_key_values.0.encoder.value f32 [B=batch_size, 2, E=encoder_sequence_length_out, 4]
    state past_key_values.0.decoder.key -> present.0.decoder.key f32 [B=batch_size, 2, {before}] -> [B=batch_size, 2, {after}]
    state past_key_values.0.decoder.value -> present.0.decoder.value f32 [B=batch_size, 2, {before}] -> [B=batch_size, 2, {after}]
    out logits f32 [B=batch_size, 1, 24]""".format(
    before="P=past_decoder_sequence_length, 4", after="P+T=past_decoder_sequence_length + 1, 4"
)


def embedded(g: Graph, name: str) -> str:
    """[batch, steps, 8] of token IDs."""
    return g.op("Gather", g.numbers(24, 8), name)


def merged_decoder() -> ModelProto:
    """A decoder that optimum merged of one without and one with caches. The caches of the encoder are computed in the
    first request, and later outputs for them have no batch."""
    encoder = "encoder_hidden_states"
    b, p, e = "batch_size", "past_decoder_sequence_length", "encoder_sequence_length"
    past = [
        tensor("past_key_values.0.decoder.key", F32, b, 2, p, 4),
        tensor("past_key_values.0.encoder.key", F32, b, 2, e + "_out", 4),
    ]
    present = [
        tensor("present.0.decoder.key", F32, b, 2, p + " + 1", 4),
        tensor("present.0.encoder.key", F32, b, 2, e + "_out", 4),
    ]
    first = [
        op("Reshape", f"{encoder} heads -> parts"), op("Transpose", "parts -> computed", perm=[0, 2, 1, 3]),
        op("Identity", "computed -> keys"), op("Identity", "computed -> written"),
    ]  # fmt: skip
    later = [op("Identity", "past_key_values.0.encoder.key -> keys_again"), op("Identity", "empty -> none")]
    return model(
        op("Gather", "table input_ids -> embedded"),
        op("Reshape", "embedded heads -> split"),
        op("Transpose", "split -> new", perm=[0, 2, 1, 3]),
        op("Concat", "past_key_values.0.decoder.key new -> present.0.decoder.key", axis=2),
        helper.make_node(
            "If", ["use_cache_branch"], ["encoder_keys", "present.0.encoder.key"],
            then_branch=branch(later, "keys_again", "none"), else_branch=branch(first, "keys", "written"),
        ),
        op("ReduceMean", "encoder_keys -> context", axes=[2], keepdims=1),
        op("ReduceMean", "present.0.decoder.key -> so_far", axes=[2], keepdims=1),
        op("Add", "new context -> with_context"),
        op("Add", "with_context so_far -> mixed"),
        op("Transpose", "mixed -> back", perm=[0, 2, 1, 3]),
        op("Reshape", "back joined -> logits"),
        inputs=[
            tensor("input_ids", I64, b, "decoder_sequence_length"), tensor(encoder, F32, b, e, 8), *past,
            tensor("use_cache_branch", bool, 1),
        ],
        outputs=[tensor("logits", F32, b, "decoder_sequence_length", 8), *present],
        constants={
            "table": np.random.default_rng(1).standard_normal((24, 8)).astype(F32), "heads": np.array([0, 0, 2, 4]),
            "joined": np.array([0, 0, 8]), "empty": np.zeros((0, 2, 1, 4), F32),
        },
    )  # fmt: skip


def branch(nodes: list[NodeProto], *outputs: str) -> GraphProto:
    """A graph that sees the values outside."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, outputs[0], [], infos)


def group_query_attention() -> ModelProto:
    """One layer of a Llama by onnxruntime-genai's builder, to which the mask only says how long a sequence is."""
    g = Graph(np.random.default_rng(9))
    x = embedded(g, "input_ids")
    q, k, v = (g.op("MatMul", x, g.numbers(8, 8, scale=0.4)) for _ in range(3))
    mask = g.cast("attention_mask", TensorProto.INT64)
    ones = g.op("ReduceSum", mask, g.constant([1]), keepdims=1)
    lengths = g.cast(g.op("Sub", ones, g.constant([1])), TensorProto.INT32)
    total = g.cast(g.op("Gather", g.op("Shape", mask), g.constant(1), axis=0), TensorProto.INT32)
    g.nodes.append(helper.make_node(
        "GroupQueryAttention", [q, k, v, "past_key_values.0.key", "past_key_values.0.value", lengths, total],
        ["attended", "present.0.key", "present.0.value"], domain="com.microsoft", num_heads=1, kv_num_heads=1,
    ))  # fmt: skip
    g.op("MatMul", g.op("Add", x, "attended"), g.numbers(8, 24, scale=0.4), result="logits")
    b, p, t = "batch_size", "past_sequence_length", "total_sequence_length"
    return g.finished(
        [tensor("input_ids", I64, b, "sequence_length"), tensor("attention_mask", I64, b, t),
         tensor("past_key_values.0.key", F32, b, 1, p, 8), tensor("past_key_values.0.value", F32, b, 1, p, 8)],
        [tensor("logits", F32, b, "sequence_length", 24), tensor("present.0.key", F32, b, 1, t, 8),
         tensor("present.0.value", F32, b, 1, t, 8)],
    )  # fmt: skip


def genai(name: str, lengths: list[tuple[int, ...]], masked: bool, **more) -> Case:
    """Sequences of unequal lengths; the mask is sent, or derived."""
    random = np.random.default_rng(12)

    sequences: list[Sequence] = []
    for counts in lengths:
        steps: Sequence = []
        for count in counts:
            steps.append({"input_ids": random.integers(0, 24, (1, count))})
            if not masked:
                steps[-1] |= all_ones(steps)
        sequences.append(steps)
    states = {f"past_key_values.0.{kind}": f"present.0.{kind}" for kind in ("key", "value")}
    model = group_query_attention()
    return Case(
        name=name, model=model, config=THREE_LINES,
        batch={each.name: 0 for each in [*model.graph.input, *model.graph.output]},
        outputs=("logits",), sequences=sequences, states=states,
        initial={state: np.zeros((1, 1, 0, 8), F32) for state in states},
        **more,
    )  # fmt: skip


def all_ones(requests: Sequence) -> Tensors:
    """The mask of a sequence that is alone."""
    return {"attention_mask": np.ones((1, sum(each["input_ids"].size for each in requests)), I64)}


# Caches of unequal lengths, with requests of equal ones.
UNEQUAL = [(1, 1, 1, 1), (4, 1, 1, 1), (2, 1, 1), (6, 1, 1, 1)]
SENT = genai("genai_llama_attention", UNEQUAL, masked=False, refused=False)

LISTED = [
    family("optimum_gpt2_io", GPT2, GPT2_CONFIG, parameters={"state_pairs": "<<<past_key_values.*, present.*>>>"},
           refused=False),
    family("dynamo_llama", LLAMA_DYNAMO),
    family("decoder_lists", LISTS),
    SENT,
    genai("genai_llama_mask", UNEQUAL, masked=True, given=all_ones, decides=("derived_inputs",), instead=SENT,
          parameters={"derived_inputs": "attention_mask = mask(past_key_values.*, input_ids)"}),
]  # fmt: skip
