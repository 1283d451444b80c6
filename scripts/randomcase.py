"""Random models with everything that is true of them: randomcase.random_case(seed, index) is always the same."""

from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto

from axisnames import BATCH, OUT_TIME, SCHEMES, TIME, Names, Spec, batch_alone, careful, letters
from randomconfig import configure
from randomgraph import CHANNEL, FLOAT, Graph
from randomstates import KINDS, NEED_TIME, WITHOUT_BATCH, Body, State
from servedcase import Case, Sequence, Tensors, nothing_given

TYPES = {np.float32: 10, np.int64: 3, np.int32: 2, np.uint8: 2, np.bool_: 1}
VOCABULARY = 12

# Forms of names by which states are paired without being told.
PAIRED = [
    ("mem{}", "mem{}_out"), ("mem{}_in", "mem{}_out"), ("cache_{}", "new_cache_{}"), ("past_{}", "present_{}"),
    ("past_key_values.{}.key", "present.{}.key"), ("mem{}", "next_mem{}"), ("mem{}", "mem{}_next"),
    ("state{}_", "state{}_N"), ("in_mem{}", "out_mem{}"),
]  # fmt: skip


def weighted(random: np.random.Generator, options: dict):
    of = list(options)
    weights = np.array([options[each] for each in of], float)
    return of[int(random.choice(len(of), p=weights / weights.sum()))]


@dataclass
class Draft:
    """A model on its way."""

    random: np.random.Generator
    graph: Graph
    sizes: dict[str, int]
    inputs: list[Spec] = field(default_factory=list)
    outputs: list[Spec] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)  # what an input is at most, which is one number in a sequence
    filled: dict[str, str] = field(default_factory=dict)  # inputs that the backend fills: a number, or steps
    about: list[str] = field(default_factory=list)
    kernel: int = 1
    stride: int = 1
    chance: bool = False
    text: bool = False

    def odds(self, share: float) -> bool:
        return self.random.random() < share

    def shuffled(self, *roles: str) -> tuple[str, ...]:
        return tuple(roles[at] for at in self.random.permutation(len(roles)))


def random_case(seed: int, index: int, told: bool = False) -> Case:
    """The model of that number. told: its configuration says where the batch is, in any case."""
    random = np.random.default_rng([seed, index])
    draft = Draft(random, Graph(random), {})
    value = compute(draft)
    answer(draft, value)
    names = name_axes(draft)
    inputs = [*draft.inputs, *(state.into for state in draft.states)]
    outputs = [*draft.outputs, *(state.out for state in draft.states)]
    order = random.permutation(len(inputs)) if draft.odds(0.3) else range(len(inputs))
    model = draft.graph.model([inputs[at] for at in order], outputs, names)
    return finish(f"m{seed}_{index}", draft, model, inputs + outputs, told)


def compute(draft: Draft) -> str:
    """Inputs, front end, what is mixed over time, and states."""
    g, random = draft.graph, draft.random
    channels = int(random.choice([2, 3, 4, 8]))
    draft.sizes[CHANNEL] = channels
    if draft.odds(0.08):
        draft.sizes[BATCH] = 1
        draft.about.append("batch fixed to 1")
    timed = draft.odds(0.85)
    if timed and draft.odds(0.35):
        draft.kernel = int(random.choice([3, 4, 5, 7, 16, 25, 60, 100]))
        draft.stride = int(random.integers(1, 3))
        draft.about.append(f"front end of {draft.kernel} frames")
    if timed and draft.odds(0.12):
        draft.sizes[TIME] = draft.kernel + int(random.integers(1, 6))
        draft.sizes[OUT_TIME] = (draft.sizes[TIME] - draft.kernel) // draft.stride + 1
    raw, value = main_input(draft, timed, channels)
    time = OUT_TIME if draft.kernel > 1 else TIME
    if draft.kernel > 1:
        value = g.convolve(value, channels, draft.kernel, draft.stride)
    if timed and draft.odds(0.6):
        if draft.odds(0.6):
            value = g.op("CumSum", value, g.constant(1))
            draft.about.append("cumsum")
        else:
            value = g.op("Add", value, g.op("Softmax", value, axis=1))
            draft.about.append("softmax")
    value = more_inputs(draft, value, channels)
    body = Body(g, raw, channels, timed, time, draft.sizes)
    return add_states(draft, body, value)


def main_input(draft: Draft, timed: bool, channels: int) -> tuple[str, str]:
    """The input x: as floats as it came, and with its channels."""
    g, random = draft.graph, draft.random
    dtype = weighted(random, TYPES)
    ids = timed and dtype in (np.int64, np.int32) and draft.odds(0.6)
    if ids or timed and draft.odds(0.2):
        roles = draft.shuffled(BATCH, TIME)
    else:
        roles = draft.shuffled(BATCH, TIME, CHANNEL) if timed else draft.shuffled(BATCH, CHANNEL)
    x = Spec("input_ids" if ids else "x", dtype, roles, dict(draft.sizes))
    draft.inputs.append(x)
    draft.about.append(f"x {np.dtype(dtype)} {''.join(roles)}")
    inside = g.inside(x)
    raw = g.cast(inside, FLOAT)
    if ids:
        rows = g.op("Gather", g.numbers(VOCABULARY, channels), g.op("Squeeze", inside, g.constant([2])))
        return raw, rows
    scale = 1 / 64 if dtype is np.uint8 else 0.5
    return raw, g.op("Mul", raw, g.numbers(channels, scale=scale))


def more_inputs(draft: Draft, value: str, channels: int) -> str:
    """Further inputs: with a batch axis or without, divisors, strings."""
    g = draft.graph
    if draft.odds(0.25):
        of = Spec("speaker", np.float32, draft.shuffled(BATCH, CHANNEL), dict(draft.sizes))
        draft.inputs.append(of)
        value = g.op("Add", value, g.inside(of))
    if draft.odds(0.12):
        of = Spec("bias", np.float32, (CHANNEL,), dict(draft.sizes))
        draft.inputs.append(of)
        value = g.op("Add", value, g.inside(of))
        draft.about.append("input without batch")
    if draft.odds(0.15):
        roles = [(), ("K",), (BATCH,), (BATCH, "K")][int(draft.random.integers(4))]
        of = Spec("chunk", np.int64, roles, draft.sizes | {"K": 1})
        draft.inputs.append(of)
        if draft.odds(0.35):
            draft.filled["chunk"] = str(draft.random.integers(1, 6))
            draft.about.append("constant")
        else:
            draft.most["chunk"] = 5
        value = g.op("Mul", value, g.cast(g.op("Div", g.constant([60]), one_number(g, of)), FLOAT))
        value = g.op("Mul", value, g.constant(np.float32(1 / 32)))
        draft.about.append("divisor " + "".join(roles))
    if draft.odds(0.07):
        roles = (BATCH,) if draft.odds(0.5) else (BATCH, "K")
        of = Spec("text", object, roles, draft.sizes | {"K": 1})
        draft.inputs.append(of)
        g.op("Identity", of.name, result="text_again")
        draft.outputs.append(Spec("text_again", object, roles, of.sizes, output=True))
        draft.text = True
        draft.about.append("text")
    return value


def one_number(g: Graph, of: Spec) -> str:
    """An input of one number, for each lane or for all."""
    return g.inside(of) if of.roles else of.name


def add_states(draft: Draft, body: Body, value: str) -> str:
    count = int(draft.random.choice([0, 1, 2, 3, 4], p=[0.22, 0.3, 0.25, 0.15, 0.08]))
    form = PAIRED[int(draft.random.integers(len(PAIRED)))]
    for number in range(count):
        kind = weighted(draft.random, {kind: n for kind, n in KINDS.items() if body.timed or kind not in NEED_TIME})
        names = form[0].format(number), form[1].format(number)
        state, value = kind(body, names, value)
        draft.states.append(state)
        draft.about.append(f"state {kind.__name__} {''.join(state.into.roles)}")
        if kind in WITHOUT_BATCH and draft.odds(0.5):
            break
    if count and draft.odds(0.1):
        roles = [(), ("K",), (BATCH,), (BATCH, "K")][int(draft.random.integers(4))]
        of = Spec("frame", np.int64, roles, draft.sizes | {"K": 1})
        draft.inputs.append(of)
        draft.filled["frame"] = "steps"
        g = draft.graph
        steps = g.op("Mul", g.cast(one_number(g, of), FLOAT), g.constant(np.float32(0.125)))
        value = g.op("Add", value, steps)
        draft.about.append("steps " + "".join(roles))
    return value


def answer(draft: Draft, value: str) -> None:
    """The outputs for clients."""
    g = draft.graph
    timed = any(TIME in spec.roles for spec in draft.inputs)
    time = OUT_TIME if draft.kernel > 1 else TIME
    whole = timed and draft.odds(0.7)
    roles = draft.shuffled(BATCH, time, CHANNEL) if whole else draft.shuffled(BATCH, CHANNEL)
    if not whole:
        value = g.mean(value, 1)
    if draft.odds(0.12):
        draft.chance = True
        seed = {"seed": 7.0} if draft.odds(0.5) else {}
        if draft.odds(0.5):
            noise = g.op("RandomUniform", shape=[1], **seed)
        else:
            noise = g.op("RandomUniformLike", value, **seed)
        value = g.op("Add", value, g.op("Mul", noise, g.constant(np.float32(3e-6))))
        draft.about.append("chance" + (", seeded" if seed else ""))
    y = Spec("y", np.float32, roles, dict(draft.sizes), output=True)
    g.outside(y, value)
    draft.outputs.append(y)
    draft.about.append(f"y {''.join(roles)}")
    if draft.odds(0.15):
        level = Spec("level", np.float32, (BATCH,) if draft.odds(0.5) else (BATCH, "K"), draft.sizes | {"K": 1}, True)
        g.outside(level, g.mean(value, 1, 2))
        draft.outputs.append(level)


def name_axes(draft: Draft) -> Names:
    specs = [*draft.inputs, *draft.outputs]
    specs += [spec for state in draft.states for spec in (state.into, state.out)]
    scheme = weighted(draft.random, SCHEMES)
    if scheme is letters and (draft.chance or draft.text):
        scheme = careful  # it may call a time n, which only a proof can tell from a batch
    if scheme is batch_alone and draft.odds(0.5):
        draft.about.append("all of one name")
    draft.about.append(f"axes {scheme.__name__}")
    return scheme(draft.random, specs)


def finish(name: str, draft: Draft, model: ModelProto, specs: list[Spec], told: bool) -> Case:
    filled = [spec for spec in draft.inputs if spec.name in draft.filled]
    sent = [spec for spec in draft.inputs if spec.name not in draft.filled]
    written = configure(draft.random, sent, draft.outputs, draft.states)
    constants = [f"{name} = {value}" for name, value in draft.filled.items() if value != "steps"]
    if constants:
        written.parameters["constant_inputs"] = "; ".join(constants)
    if "frame" in draft.filled:
        written.parameters["derived_inputs"] = "frame = steps"

    def given(requests: Sequence) -> Tensors:
        values = draft.filled | {"frame": len(requests) - 1}
        return {spec.name: np.full(spec.shape({BATCH: 1}), int(values[spec.name]), spec.dtype) for spec in filled}

    case = Case(
        name=name,
        model=model,
        config=written.text,
        parameters=written.parameters,
        batch={spec.name: spec.batch for spec in specs},
        outputs=tuple(spec.name for spec in draft.outputs),
        sequences=sequences(draft, sent),
        states={state.into.name: state.out.name for state in draft.states},
        initial={state.into.name: state.initial(1 if written.implicit else 0) for state in draft.states},
        given=given if filled else nothing_given,
        fixed=BATCH in draft.sizes,
        told=told or written.told,
        about="; ".join([*draft.about, *written.about]),
    )
    if case.told:
        case.parameters.update(case.whole_truth())
    return case


def sequences(draft: Draft, inputs: list[Spec]) -> list[Sequence]:
    """What clients send. Mostly of one length at a time, so that batches form."""
    random = draft.random
    count, steps = int(random.integers(2, 5)), int(random.integers(2, 5))
    alike = draft.odds(0.8)
    base = [draft.kernel + int(random.integers(0, 6)) for _ in range(steps)]
    same = draft.odds(0.7)  # what all requests of all sequences say
    values = {name: int(random.integers(1, top + 1)) for name, top in draft.most.items()}
    # Triton wants as many rows of an input without a batch axis as of the others, which it cannot have.
    several = not draft.states and all(spec.batch is not None for spec in inputs) and BATCH not in draft.sizes
    made = []
    for _ in range(count):
        own = values if same else {name: int(random.integers(1, top + 1)) for name, top in draft.most.items()}
        bias = random.standard_normal(draft.sizes[CHANNEL]).astype(np.float32)
        sequence = []
        for step in range(steps - (draft.odds(0.2) and steps > 1)):
            time = base[step] if alike else draft.kernel + int(random.integers(0, 6))
            rows = int(random.integers(1, 4)) if several else 1
            extents = {BATCH: rows, TIME: time}
            feeds = {spec.name: values_of(random, spec, extents, own, bias) for spec in inputs}
            sequence.append(feeds)
        made.append(sequence)
    return made


def values_of(random, spec: Spec, extents: dict[str, int], own: dict[str, int], bias: np.ndarray) -> np.ndarray:
    shape = spec.shape(extents)
    if spec.name in own:
        return np.full(shape, own[spec.name], spec.dtype)
    if spec.name == "bias":
        return bias
    if spec.name == "input_ids":
        return random.integers(0, VOCABULARY, shape).astype(spec.dtype)
    if spec.dtype is object:
        return np.array([f"t{n}" for n in random.integers(0, 1000, int(np.prod(shape)))], object).reshape(shape)
    if spec.dtype is np.uint8:
        return random.integers(0, 256, shape).astype(np.uint8)
    if spec.dtype is np.bool_:
        return random.random(shape) < 0.5
    if np.issubdtype(spec.dtype, np.integer):
        return random.integers(-5, 6, shape).astype(spec.dtype)
    return random.standard_normal(shape).astype(np.float32)
