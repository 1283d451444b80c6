"""Decoders as Hugging Face's exporters write them, with attention_mask and position_ids that the backend makes: clients
send tokens and nothing else, and sequences of unequal length share runs where the model stands it."""

import re

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, ValueInfoProto

from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from sequences import Reference, Tensors, play

F32 = np.float32
VOCABULARY, HEADS, SIZE, LAYERS, LONGEST = 40, 2, 8, 2, 64
WIDTH = HEADS * SIZE


def caches(kind: str, length: str) -> list[ValueInfoProto]:
    return [
        tensor(f"{kind}.{layer}.{part}", F32, "batch_size", HEADS, length, SIZE)
        for layer in range(LAYERS)
        for part in ("key", "value")
    ]


def decoder(attention) -> ModelProto:
    """Tokens and positions are looked up, layers of attention follow, and each token gets its logits."""
    random = np.random.default_rng(7)
    weights = {
        "tokens": random.normal(size=(VOCABULARY, WIDTH)),
        "places": random.normal(size=(LONGEST, WIDTH)),
        "head": random.normal(size=(WIDTH, VOCABULARY)),
    }
    nodes = [
        op("Gather", "tokens input_ids -> embedded"),
        op("Gather", "places position_ids -> placed"),
        op("Add", "embedded placed -> x0"),
        op("Shape", "input_ids -> ids_shape"),
        op("Gather", "ids_shape zero -> batch_size"),
        op("Expand", "batch_size batch_size -> lanes"),
    ]
    for layer in range(LAYERS):
        weights |= {f"{name}{layer}": random.normal(size=(WIDTH, WIDTH)) / 2 for name in ("wq", "wk", "wv", "wo")}
        nodes += [op("MatMul", f"x{layer} w{part}{layer} -> {part}{layer}") for part in "qkv"]
        nodes += attention(layer)
        nodes += [
            op("MatMul", f"attended{layer} wo{layer} -> o{layer}"),
            op("Add", f"x{layer} o{layer} -> x{layer + 1}"),
        ]
    nodes.append(op("MatMul", f"x{LAYERS} head -> logits"))
    constants = {name: np.asarray(value, F32) for name, value in weights.items()}
    constants |= {"zero": np.array([0]), "one": np.array([1]), "unit": np.array(1), "none": np.array(0)}
    constants |= {"split": np.array([0, 0, HEADS, SIZE]), "joined": np.array([0, 0, WIDTH])}
    constants |= {"low": np.array(-1e9, F32), "nothing": np.array(0, F32), "scale": np.array(SIZE**-0.5, F32)}
    constants |= {"ones": np.array([1, 2]), "row": np.array([1]), "column": np.array([0]), "three": np.array([1])}
    return model(
        *nodes,
        inputs=[
            tensor("input_ids", np.int64, "batch_size", "sequence_length"),
            tensor("attention_mask", np.int64, "batch_size", "past_sequence_length + sequence_length"),
            tensor("position_ids", np.int64, "batch_size", "sequence_length"),
            *caches("past_key_values", "past_sequence_length"),
        ],
        outputs=[
            tensor("logits", F32, "batch_size", "sequence_length", VOCABULARY),
            tensor("lanes", np.int64, "batch_size"),
            *caches("present", "past_sequence_length + sequence_length"),
        ],
        constants=constants,
    )


def masked(layer: int) -> list[NodeProto]:
    """Attention in plain operators: to what the mask shows, up to the token itself."""
    at = f"{layer}"
    heads = [
        node
        for part in "qkv"
        for node in (
            op("Reshape", f"{part}{at} split -> {part}_split{at}"),
            op("Transpose", f"{part}_split{at} -> {part}_heads{at}", perm=[0, 2, 1, 3]),
        )
    ]
    return [
        *heads,
        op("Concat", f"past_key_values.{at}.key k_heads{at} -> present.{at}.key", axis=2),
        op("Concat", f"past_key_values.{at}.value v_heads{at} -> present.{at}.value", axis=2),
        op("Transpose", f"present.{at}.key -> turned{at}", perm=[0, 1, 3, 2]),
        op("MatMul", f"q_heads{at} turned{at} -> raw{at}"),
        op("Mul", f"raw{at} scale -> scores{at}"),
        op("Shape", f"attention_mask -> mask_shape{at}", start=1, end=2),
        op("Squeeze", f"mask_shape{at} -> total{at}"),
        op("Shape", f"past_key_values.{at}.key -> past_shape{at}", start=2, end=3),
        op("Squeeze", f"past_shape{at} -> past{at}"),
        op("Range", f"none total{at} unit -> keys{at}"),
        op("Range", f"past{at} total{at} unit -> queries{at}"),
        op("Unsqueeze", f"queries{at} three -> queries_down{at}"),
        op("LessOrEqual", f"keys{at} queries_down{at} -> earlier{at}"),
        op("Unsqueeze", f"attention_mask ones -> mask_wide{at}"),
        op("Cast", f"mask_wide{at} -> shown{at}", to=9),
        op("And", f"shown{at} earlier{at} -> seen{at}"),
        op("Where", f"seen{at} nothing low -> bias{at}"),
        op("Add", f"scores{at} bias{at} -> biased{at}"),
        op("Softmax", f"biased{at} -> weighed{at}", axis=-1),
        op("MatMul", f"weighed{at} present.{at}.value -> mixed{at}"),
        op("Transpose", f"mixed{at} -> mixed_back{at}", perm=[0, 2, 1, 3]),
        op("Reshape", f"mixed_back{at} joined -> attended{at}"),
    ]


def grouped(layer: int) -> list[NodeProto]:
    """GroupQueryAttention, as onnxruntime-genai and optimised models have it: the mask's sum is a length."""
    at = f"{layer}"
    return [
        op("ReduceSum", f"attention_mask one -> sum{at}", keepdims=0),
        op("Sub", f"sum{at} unit -> last{at}"),
        op("Cast", f"last{at} -> seqlens{at}", to=6),
        op("Shape", f"attention_mask -> mask_shape{at}", start=1, end=2),
        op("Squeeze", f"mask_shape{at} -> total64{at}"),
        op("Cast", f"total64{at} -> total{at}", to=6),
        op(
            "GroupQueryAttention",
            f"q{at} k{at} v{at} past_key_values.{at}.key past_key_values.{at}.value seqlens{at} total{at}"
            f" -> attended{at} present.{at}.key present.{at}.value",
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=HEADS,
        ),
    ]


def given(steps: list[Tensors]) -> Tensors:
    """The mask and the positions that a client of ONNX Runtime would make."""
    end, length = sum(step["input_ids"].shape[1] for step in steps), steps[-1]["input_ids"].shape[1]
    return {"attention_mask": np.ones((1, end), np.int64), "position_ids": np.arange(end - length, end)[np.newaxis]}


STATES = {f"past_key_values.{layer}.{part}": f"present.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")}
PORTS = [io("input_ids", "INT64", -1)], [io("logits", "FP32", -1, VOCABULARY), io("lanes", "INT64", more="")]
DERIVED = "attention_mask = mask(past_key_values.*, input_ids); position_ids = positions(input_ids)"
DECODERS = {"masked": decoder(masked), "grouped": decoder(grouped)}
SCHEDULERS = ["oldest", "direct", "free"]

MODELS = {
    # An output that counts the lanes looks like one of lanes that see each other, so the batch has to be told.
    name: Folder(config(*PORTS, oldest(4, delay=300_000), derived_inputs=DERIVED, batch_axes="* = 0"), made)
    for name, made in DECODERS.items()
}


def tokens(lengths: list[int], seed: int) -> list[Tensors]:
    random = np.random.default_rng(seed)
    return [{"input_ids": random.integers(0, VOCABULARY, (1, length))} for length in lengths]


# Prompts of unequal length, and then a token at a time.
PROMPTS = [tokens([length, *[1] * 6], length) for length in (3, 5, 4, 7)]


@pytest.mark.parametrize("name", MODELS)
def test_every_answer_is_that_of_the_sequence_alone(own_client, scheduler, name):
    answers = play(own_client, name, PROMPTS)
    for number, (steps, answered) in enumerate(zip(PROMPTS, answers, strict=True)):
        for step, (got, want) in enumerate(
            zip(answered, Reference(DECODERS[name], STATES, given=given).answers(steps), strict=True)
        ):
            np.testing.assert_allclose(
                got["logits"], want["logits"], rtol=1e-5, atol=1e-4, err_msg=f"sequence {number}, step {step}"
            )
    lanes = [int(step["lanes"].max()) for answered in answers for step in answered[1:]]
    assert max(lanes) <= (4 if name == "masked" else 1), lanes
    if scheduler == "direct":  # whose batches do not wait for all four
        assert (max(lanes) > 1) == (name == "masked"), lanes
    else:
        assert max(lanes) == (4 if name == "masked" else 1), lanes


def test_what_the_mask_shows_is_found_at_load(own_server, own_client):
    """With GroupQueryAttention unequal lengths run separately, and the log says so, once."""
    names = "|".join(map(own_client.served, DECODERS))
    lines = own_server.log_text().splitlines()
    log = "\n".join(line for line in lines if re.search(f"model=({names})\\b", line))
    assert log.count("sequences of unequal length run separately: ") == 1
    assert re.search(r'the mask \\?"attention_mask\\?" does not hide padding .*"logits', log)
    assert log.count("unequal length can share runs") == 1
