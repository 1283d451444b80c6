"""Small models with the signatures of what toolkits export, for docs/recipes.md: names, types and axes are theirs, the
numbers are not. Every output depends on every input and on every state of its own sequence, and on nothing else."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from graphs import model, onnx_type, tensor
from sequences import Reference, Tensors

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass(frozen=True)
class Recipe:
    """A model, and what clients send to it.

    states   the output that each state's input is read from in the next step
    batch    the name of the batch axis; None: the model has none
    lengths  how long named axes of outputs are: as the axis of another name in an input, or so many; a state grows along
             such an axis by as much, and keeps its shape along others
    filled   inputs that the backend fills
    given    what it fills them with, by the requests so far, of which the last is the one that is run
    initial  what states are at first, where that is not zeros, empty along dynamic axes
    alone    the model runs for one sequence only, though its axes do not say so
    resizes  states are written in the size that such axes have, whatever size they had
    int8     what outputs are computed from is quantized dynamically, with one scale for all lanes
    """

    inputs: Sequence[ValueInfoProto]
    outputs: Sequence[ValueInfoProto]
    states: dict[str, str]
    batch: str | None = "batch"
    lengths: dict[str, str | int] = field(default_factory=dict)
    filled: Sequence[str] = ()
    given: Callable[[list[Tensors]], Tensors] = lambda so_far: {}
    initial: Tensors = field(default_factory=dict)
    alone: bool = False
    resizes: bool = False
    int8: bool = False

    def model(self) -> ModelProto:
        return _Graph(self).model()

    def files(self) -> dict[str, bytes]:
        """The initial values that are not all the same, as files of the model's folder."""
        return {f"initial_state/{name}.npy": npy(value) for name, value in self.initial.items() if np.ptp(value)}

    def sent(self) -> list[ValueInfoProto]:
        return [each for each in self.inputs if each.name not in self.states and each.name not in self.filled]

    def axis(self, of: ValueInfoProto) -> int | None:
        names = axes(of)
        return names.index(self.batch) if self.batch in names else None

    def reference(self) -> Reference:
        zeros = {}
        for each in self.inputs:
            if each.name in self.states and each.name not in self.initial:
                shape = [1 if axis == self.batch else 0 if isinstance(axis, str) else axis for axis in axes(each)]
                zeros[each.name] = np.zeros(shape, numpy_type(each))
        positions = {each.name: self.axis(each) for each in [*self.inputs, *self.outputs]}
        return _Reference(
            self.model(), self.states, zeros | self.initial,
            axes=positions, rows=self.batch is not None, given=self.given,
        )  # fmt: skip

    def requests(self, random: np.random.Generator, steps: int, length: int = 3) -> list[Tensors]:
        """Requests of one sequence. Named axes but the batch have that length; one that names a sum of past and present
        grows as its states do."""
        made = []
        for step in range(steps):
            request = {}
            for each in self.sent():
                shape = [1] if self.batch is not None else []
                for at, axis in enumerate(axes(each)):
                    if at == self.axis(each):
                        continue
                    shape.append(axis if isinstance(axis, int) else length * (step + 1) if "total" in axis else length)
                if self.batch is not None and len(shape) == 1:
                    shape.append(1)
                request[each.name] = numbers(random, shape, numpy_type(each))
            made.append(request)
        return made


class _Reference(Reference):
    """A reference that is given what follows from the request that is run, too."""

    def answers(self, steps: list[Tensors]) -> list[Tensors]:
        given = lambda step, _before: self.given(steps[: step + 1])
        return Reference.answers(replace(self, given=given), steps)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def numbers(random: np.random.Generator, shape: list[int], dtype: np.dtype) -> np.ndarray:
    return random.integers(0, 2 if dtype == bool else 8, shape).astype(dtype)


def axes(of: ValueInfoProto) -> list[int | str]:
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in of.type.tensor_type.shape.dim]


def numpy_type(of: ValueInfoProto) -> np.dtype:
    types = (np.float32, np.float16, np.int64, np.int32, bool)
    return next(np.dtype(each) for each in types if onnx_type(each) == of.type.tensor_type.elem_type)


class _Graph:
    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def model(self) -> ModelProto:
        recipe = self.recipe
        sent = [self.number(each, weight) for weight, each in enumerate(recipe.inputs, 1) if each.name not in recipe.states]
        kept = [self.number(each, weight) for weight, each in enumerate(recipe.inputs, 2) if each.name in recipe.states]
        self.node("Sum", [*sent], "request")
        self.node("Sum", ["request", *kept], "exactly everything" if recipe.int8 else "everything")
        if recipe.int8:
            parts = ["everything in 8 bits", "scale", "zero"]
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", ["exactly everything"], parts))
            self.node("DequantizeLinear", parts, "everything")
        by_name = {each.name: each for each in [*recipe.inputs, *recipe.outputs]}
        for before, after in recipe.states.items():
            self.next(by_name[before], by_name[after])
        for each in recipe.outputs:
            if each.name not in recipe.states.values():
                self.spread("everything", each, each.name)
        return model(*self.nodes, inputs=recipe.inputs, outputs=recipe.outputs, constants=self.constants)

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def number(self, of: ValueInfoProto, weight: int) -> str:
        """One number for each lane, or for all of them if the tensor has no batch."""
        name, others = of.name, [at for at in range(len(axes(of))) if at != self.recipe.axis(of)]
        value = self.node("Cast", [name], f"{name} as float", to=TensorProto.FLOAT)
        if self.recipe.alone:
            value = self.node("Reshape", [value, self.constant(f"{name} shape", [1, *axes(of)[1:]])], f"{name} alone")
        if others:
            value = self.node("ReduceSum", [value, self.constant(f"{name} axes", others)], f"{name} sum", keepdims=0)
        return self.node("Mul", [value, self.constant(f"{name} weight", np.float32(weight / 16))], f"{name} number")

    def length(self, axis: str) -> str:
        """How long an axis is in this run."""
        source = self.recipe.lengths.get(axis, axis)
        if isinstance(source, int):
            return self.constant(f"length {axis}", [source])
        of = next(each for each in self.recipe.inputs if source in axes(each) and each.name not in self.recipe.states)
        at = axes(of).index(source)
        return self.node("Shape", [of.name], f"length {axis} {len(self.nodes)}", start=at, end=at + 1)

    def lanes(self, number: str, like: ValueInfoProto, name: str) -> str:
        """The number of each lane, with axes of 1 for the others of a tensor."""
        others = [at for at in range(len(axes(like))) if at != self.recipe.axis(like)]
        if self.recipe.axis(like) is None or not others:
            return number
        return self.node("Unsqueeze", [number, self.constant(f"{name} others", others)], f"{name} lanes")

    def spread(self, number: str, like: ValueInfoProto, output: str) -> str:
        """The number of each lane in every element of a tensor."""
        name, batch = f"{output} spread", self.recipe.axis(like)
        parts = [
            self.constant(f"{name} {at}", [1 if at == batch else axis])
            if isinstance(axis, int) or at == batch
            else self.length(axis)
            for at, axis in enumerate(axes(like))
        ]
        value = self.lanes(number, like, name)
        if parts:
            value = self.node("Expand", [value, self.node("Concat", parts, f"{name} shape", axis=0)], name)
        return self.node("Cast", [value], output, to=like.type.tensor_type.elem_type)

    def next(self, before: ValueInfoProto, after: ValueInfoProto) -> None:
        """The next value of a state."""
        name, names = before.name, axes(before)
        grows = [at for at, axis in enumerate(names) if axis in self.recipe.lengths and at != self.recipe.axis(before)]
        of_type = before.type.tensor_type.elem_type
        if grows and self.recipe.resizes:
            self.spread("everything", after, after.name)
        elif grows:
            self.node("Concat", [name, self.spread("request", before, f"{name} new")], after.name, axis=grows[0])
        elif of_type == TensorProto.BOOL:
            self.node("Not", [name], after.name)
        elif of_type not in FLOATS:
            self.node("Add", [name, self.constant(f"{name} one", np.ones((), numpy_type(before)))], after.name)
        else:
            half = self.constant(f"{name} half", np.array(0.5, numpy_type(before)))
            self.node("Mul", [name, half], f"{name} halved")
            self.node("Cast", [self.lanes("request", before, name)], f"{name} more", to=of_type)
            self.node("Add", [f"{name} halved", f"{name} more"], after.name)


F32, I64, I32 = np.float32, np.int64, np.int32


def recurrent(*outputs: str, layers: int = 2, batch: str | int = "batch", rank: int = 3) -> Recipe:
    """An LSTM of PyTorch, its last two outputs being h and c. Another rank is what the dynamo exporter may declare."""
    shape = [layers, batch, 16]
    return Recipe(
        [tensor("x", F32, batch, "time", 8), tensor("h0", F32, *shape), tensor("c0", F32, *shape)],
        [tensor(outputs[0], F32, batch, "time", 16)] + [tensor(name, F32, *(rank - 3) * [1], *shape) for name in outputs[1:]],
        {"h0": outputs[1], "c0": outputs[2]},
    )


def decoder(*, position_ids: bool, filled: Sequence[str] = ()) -> Recipe:
    """A decoder of one layer, as optimum and onnxruntime-genai write it."""
    cache, total = ["batch_size", 2, "past_sequence_length", 4], "total_sequence_length"
    ids = ["batch_size", "sequence_length"]

    def mask(so_far: list[Tensors]) -> Tensors:
        return {"attention_mask": np.ones((1, sum(each["input_ids"].shape[1] for each in so_far)), I64)}

    return Recipe(
        [tensor("input_ids", I64, *ids), tensor("attention_mask", I64, "batch_size", total)]
        + ([tensor("position_ids", I64, *ids)] if position_ids else [])
        + [tensor(f"past_key_values.0.{part}", F32, *cache) for part in ("key", "value")],
        [tensor("logits", F32, *ids, 10)]
        + [tensor(f"present.0.{part}", F32, "batch_size", 2, total, 4) for part in ("key", "value")],
        {f"past_key_values.0.{part}": f"present.0.{part}" for part in ("key", "value")},
        batch="batch_size",
        lengths={"past_sequence_length": "sequence_length"},
        filled=filled,
        given=mask if filled else lambda so_far: {},
    )


def decoder_with_past() -> Recipe:
    """T5's: the caches of the encoder come from the client, and only those of the decoder are written."""
    return Recipe(
        [
            tensor("input_ids", I64, "batch_size", "decoder_sequence_length"),
            tensor("encoder_attention_mask", I64, "batch_size", "encoder_sequence_length"),
            tensor("past_key_values.0.decoder.key", F32, "batch_size", 2, "past_decoder_sequence_length", 4),
            tensor("past_key_values.0.encoder.key", F32, "batch_size", 2, "encoder_sequence_length_out", 4),
        ],
        [
            tensor("logits", F32, "batch_size", "decoder_sequence_length", 10),
            tensor("present.0.decoder.key", F32, "batch_size", 2, "past_decoder_sequence_length + 1", 4),
        ],
        {"past_key_values.0.decoder.key": "present.0.decoder.key"},
        batch="batch_size",
        lengths={"past_decoder_sequence_length": 1},
    )


def zipformer() -> Recipe:
    states = {"cached_key_0": [8, "N", 4], "cached_nonlin_attn_0": [1, "N", 8, 6], "cached_conv1_0": ["N", 6, 3]}
    states |= {"embed_states": ["N", 4, 3, 5]}
    return Recipe(
        [tensor("x", F32, "N", 45, 80)]
        + [tensor(name, F32, *dims) for name, dims in states.items()]
        + [tensor("processed_lens", I64, "N")],
        [tensor("encoder_out", F32, "N", 16, 32)]
        + [tensor(f"new_{name}", F32, *dims) for name, dims in states.items()]
        + [tensor("new_processed_lens", I64, "N")],
        {name: f"new_{name}" for name in [*states, "processed_lens"]},
        batch="N",
    )


def fast_conformer() -> Recipe:
    channel, time = ["B", 2, 7, 16], ["B", 2, 16, 4]
    return Recipe(
        [
            tensor("audio_signal", F32, "B", 80, "T"),
            tensor("length", I64, "B"),
            tensor("cache_last_channel", F32, *channel),
            tensor("cache_last_time", F32, *time),
            tensor("cache_last_channel_len", I64, "B"),
        ],
        [
            tensor("outputs", F32, "B", 16, "T_OUT"),
            tensor("encoded_lengths", I64, "B"),
            tensor("cache_last_channel_next", F32, *channel),
            tensor("cache_last_time_next", F32, *time),
            tensor("cache_last_channel_next_len", I64, "B"),
        ],
        {
            "cache_last_channel": "cache_last_channel_next",
            "cache_last_time": "cache_last_time_next",
            "cache_last_channel_len": "cache_last_channel_next_len",
        },
        batch="B",
        lengths={"T_OUT": "T"},
    )


def transducer() -> Recipe:
    """NeMo's decoder_joint."""
    state = [1, "batch", 16]
    return Recipe(
        [
            tensor("encoder_outputs", F32, "batch", 16, "time"),
            tensor("targets", I32, "batch", "length"),
            tensor("target_length", I32, "batch"),
            tensor("input_states_1", F32, *state),
            tensor("input_states_2", F32, *state),
        ],
        [
            tensor("outputs", F32, "batch", "time", "length", 10),
            tensor("prednet_lengths", I32, "batch"),
            tensor("output_states_1", F32, *state),
            tensor("output_states_2", F32, *state),
        ],
        {f"input_states_{n}": f"output_states_{n}" for n in (1, 2)},
    )


def wenet() -> Recipe:
    """The streaming encoder of export_onnx_gpu.py."""
    attention, convolution, mask = ["B", 2, 4, 8, 16], ["B", 2, 16, 7], ["B", 1, 8]
    return Recipe(
        [
            tensor("chunk_xs", F32, "B", "T", 80),
            tensor("chunk_lens", I32, "B"),
            tensor("offset", I64, "B", 1),
            tensor("att_cache", F32, *attention),
            tensor("cnn_cache", F32, *convolution),
            tensor("cache_mask", F32, *mask),
        ],
        [
            tensor("log_probs", F32, "B", "T_OUT", 10),
            tensor("log_probs_idx", I64, "B", "T_OUT", 10),
            tensor("chunk_out", F32, "B", "T_OUT", 16),
            tensor("chunk_out_lens", I32, "B"),
            tensor("r_offset", I64, "B", 1),
            tensor("r_att_cache", F32, *attention),
            tensor("r_cnn_cache", F32, *convolution),
            tensor("r_cache_mask", F32, *mask),
        ],
        {name: f"r_{name}" for name in ("offset", "att_cache", "cnn_cache", "cache_mask")},
        batch="B",
        lengths={"T_OUT": "T"},
    )


WENET_CACHE = (2, 4, 64, 16)  # a cache for 4 chunks of 16


def wenet_cpu() -> Recipe:
    """The encoder of export_onnx_cpu.py, chunks of 16 and 4 of them in the cache."""
    convolution = [2, 1, 16, 7]

    def given(so_far: list[Tensors]) -> Tensors:
        frames = sum(each["chunk"].shape[1] for each in so_far[:-1])
        return {"offset": np.array(64 + frames), "required_cache_size": np.array(64)}

    return Recipe(
        [
            tensor("chunk", F32, 1, "T", 80),
            tensor("offset", I64),
            tensor("required_cache_size", I64),
            tensor("att_cache", F32, 2, 4, "T_CACHE", 16),
            tensor("cnn_cache", F32, *convolution),
            tensor("att_mask", bool, 1, 1, "T_ADD_T_CACHE"),
        ],
        [
            tensor("output", F32, 1, "T", 16),
            tensor("r_att_cache", F32, 2, 4, "T_CACHE", 16),
            tensor("r_cnn_cache", F32, *convolution),
        ],
        {name: f"r_{name}" for name in ("att_cache", "cnn_cache")},
        batch=None,
        filled=("offset", "required_cache_size"),
        given=given,
        initial={"att_cache": np.zeros(WENET_CACHE, F32)},
    )


def fsmn_vad() -> Recipe:
    cache = [1, 8, 19, 1]
    return Recipe(
        [tensor("speech", F32, 1, "feats_length", 400)] + [tensor(f"in_cache{n}", F32, *cache) for n in range(4)],
        [tensor("logits", F32, 1, "feats_length", 248)] + [tensor(f"out_cache{n}", F32, *cache) for n in range(4)],
        {f"in_cache{n}": f"out_cache{n}" for n in range(4)},
        batch=None,
    )


def lfr_cmvn_pe() -> Recipe:
    return Recipe(
        [tensor("chunk_xs", F32, "B", 61, 80), tensor("cache", F32, "B", 10, 560), tensor("offset", I32, "B", 1)],
        [
            tensor("chunk_xs_out", F32, "B", 10, 560),
            tensor("chunk_xs_out_len", I32, "B", 1),
            tensor("r_cache", F32, "B", 10, 560),
            tensor("r_offset", I32, "B", 1),
        ],
        {"cache": "r_cache", "offset": "r_offset"},
        batch="B",
    )


def ten_vad() -> Recipe:
    hidden = [None, 64]
    return Recipe(
        [tensor("input_1", F32, None, 3, 41)] + [tensor(f"input_{n}", F32, *hidden) for n in range(2, 6)],
        [tensor("output_1", F32, None, None, 1)] + [tensor(f"output_{n}", F32, *hidden) for n in range(2, 6)],
        {f"input_{n}": f"output_{n}" for n in range(2, 6)},
        batch="",
        lengths={"": 1},
        alone=True,
    )


def gtcrn() -> Recipe:
    caches = {"conv_cache": [2, 1, 4, 4, 8], "tra_cache": [2, 3, 1, 1, 4], "inter_cache": [2, 1, 8, 4]}
    return Recipe(
        [tensor("mix", F32, 1, 257, 1, 2)] + [tensor(name, F32, *dims) for name, dims in caches.items()],
        [tensor("enh", F32, 1, 257, 1, 2)] + [tensor(f"{name}_out", F32, *dims) for name, dims in caches.items()],
        {name: f"{name}_out" for name in caches},
        batch=None,
    )


def policy() -> Recipe:
    """A recurrent policy of rsl_rl."""
    return Recipe(
        [tensor("obs", F32, 1, 12)] + [tensor(f"{name}_in", F32, 1, 1, 16) for name in "hc"],
        [tensor("actions", F32, 1, 4)] + [tensor(f"{name}_out", F32, 1, 1, 16) for name in "hc"],
        {f"{name}_in": f"{name}_out" for name in "hc"},
        batch=None,
    )


def recurrent_ppo() -> Recipe:
    """A policy of sb3-contrib, which is told where an episode starts."""
    return Recipe(
        [tensor("obs", F32, "batch", 4)]
        + [tensor(f"{name}_in", F32, 1, "batch", 16) for name in "hc"]
        + [tensor("episode_starts", F32, "batch")],
        [tensor("actions", F32, "batch", 2)] + [tensor(f"{name}_out", F32, 1, "batch", 16) for name in "hc"],
        {f"{name}_in": f"{name}_out" for name in "hc"},
        filled=("episode_starts",),
        given=lambda so_far: {"episode_starts": np.array([float(len(so_far) == 1)], F32)},
    )


def deep_filter() -> Recipe:
    """torchDF's, with a state that does not begin with zeros."""
    return Recipe(
        [tensor("input_frame", F32, 480), tensor("states", F32, 64), tensor("atten_lim_db", F32)],
        [tensor("enhanced_audio_frame", F32, 480), tensor("new_states", F32, 64), tensor("lsnr", F32, 1)],
        {"states": "new_states"},
        batch=None,
        filled=("atten_lim_db",),
        given=lambda so_far: {"atten_lim_db": np.array(0, F32)},
        initial={"states": np.arange(64, dtype=F32)},
    )


def matting() -> Recipe:
    """The axes of Robust Video Matting: those of the states have names of the picture's, and are 1 x 1 at first."""
    names = [f"r{n}" for n in range(1, 5)]
    return Recipe(
        [tensor("src", F32, "batch_size", 3, "height", "width")]
        + [tensor(f"{name}i", F32, "batch_size", "channels", "height", "width") for name in names]
        + [tensor("downsample_ratio", F32, 1)],
        [tensor("fgr", F32, "batch_size", 3, "height", "width"), tensor("pha", F32, "batch_size", 1, "height", "width")]
        + [tensor(f"{name}o", F32, "batch_size", "channels", "height", "width") for name in names],
        {f"{name}i": f"{name}o" for name in names},
        batch="batch_size",
        lengths={"channels": 4, "height": "height", "width": "width"},
        resizes=True,
        filled=("downsample_ratio",),
        given=lambda so_far: {"downsample_ratio": np.array([0.25], F32)},
        initial={f"{name}i": np.zeros((1, 1, 1, 1), F32) for name in names},
    )


# By the names that the page has for them.
NEED_MORE = {
    "recipe_lost_names": recurrent("add", "getitem_1", "getitem_2"),
    "recipe_masked_decoder": decoder(position_ids=False, filled=("attention_mask",)),
    "recipe_wenet_cpu": wenet_cpu(),
    "recipe_matting": matting(),
    "recipe_deep_filter": deep_filter(),
    "recipe_recurrent_ppo": recurrent_ppo(),
    "recipe_int8": replace(zipformer(), int8=True),
}
THREE_LINES = {
    "PyTorch: LSTM or GRU with `h0`, `c0`, `hn`, `cn`": recurrent("y", "hn", "cn"),
    "PyTorch's dynamo exporter, the same": recurrent("y", "hn", "cn", layers=1, rank=4),
    "rsl_rl: recurrent policy": policy(),
    "optimum: decoder, `text-generation-with-past`": decoder(position_ids=True),
    "optimum: `decoder_with_past` of T5 or BART": decoder_with_past(),
    "onnxruntime-genai": decoder(position_ids=False),
    "icefall, sherpa: streaming Zipformer, LSTM": zipformer(),
    "NeMo: cache-aware FastConformer": fast_conformer(),
    "NeMo: `decoder_joint`": transducer(),
    "WeNet: `export_onnx_gpu.py`": wenet(),
    "FunASR: FSMN VAD": fsmn_vad(),
    "FunASR: `lfr_cmvn_pe`": lfr_cmvn_pe(),
    "TEN VAD": ten_vad(),
    "GTCRN": gtcrn(),
}
