"""Configurations of random models: all of them written out, as Triton's implicit state, or three lines."""

from dataclasses import dataclass, field

import numpy as np

from axisnames import BATCH, Spec
from randomstates import State

IDLE = "max_sequence_idle_microseconds: 20000000"
CPU = "instance_group [{ kind: KIND_CPU }]"
DELAY = 15_000  # µs that a batch waits for the requests of all sequences
TRITON_TYPES = {
    np.float32: "FP32", np.int64: "INT64", np.int32: "INT32", np.uint8: "UINT8", np.bool_: "BOOL", object: "STRING",
}  # fmt: skip


@dataclass
class Written:
    """A configuration. implicit: it lists its states as Triton's implicit state. told: it says where the batch is."""

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    implicit: bool = False
    told: bool = False
    about: list[str] = field(default_factory=list)


def configure(random: np.random.Generator, inputs: list[Spec], outputs: list[Spec], states: list[State]) -> Written:
    """Draws a configuration and writes it. Everything in it is true of the model."""
    written = Written()
    kind = random.random()
    written.implicit = bool(states) and kind < 0.25 and first(inputs + outputs, states)
    three_lines = not written.implicit and kind < 0.6
    if three_lines:
        written.text = f'backend: "stateful"\n{scheduler(random, written, states, 0)}\n'
        written.about.append("three lines")
        return written
    batch = pick_batch(random, inputs + outputs, written)
    nvidia = bool(states) and batch > 0 and not written.implicit and random.random() < 0.12
    if nvidia:
        written.about.append("dims of every axis")
    written.told = random.random() < 0.15
    pairs = not written.implicit and bool(states) and random.random() < 0.5
    if pairs:
        written.parameters["state_pairs"] = " ".join(f"<<<{s.into.name}, {s.out.name}>>>" for s in states)
    listed = f"state [ {', '.join(map(as_state, states))} ]" if written.implicit else ""
    written.about.append("implicit states" if written.implicit else "written out")
    written.text = "\n".join([
        'backend: "stateful"',
        f"max_batch_size: {batch}",
        f"input [ {', '.join(tensor(spec, batch, nvidia) for spec in inputs)} ]",
        f"output [ {', '.join(tensor(spec, batch, nvidia) for spec in outputs)} ]",
        scheduler(random, written, states, batch, listed),
        CPU,
    ])  # fmt: skip
    return written


def first(tensors: list[Spec], states: list[State]) -> bool:
    """Whether the batch is in front everywhere, as Triton's implicit state wants it."""
    return all(spec.batch in (0, None) for spec in tensors) and all(state.into.batch == 0 for state in states)


def pick_batch(random: np.random.Generator, tensors: list[Spec], written: Written) -> int:
    """max_batch_size. 0 is for models without scalars, which Triton takes only with a batch."""
    if all(spec.roles for spec in tensors) and not written.implicit and random.random() < 0.08:
        written.about.append("max_batch_size 0")
        return 0
    if random.random() < 0.06:
        written.about.append("max_batch_size 1")
        return 1
    return int(random.integers(4, 9))


def scheduler(random: np.random.Generator, written: Written, states: list[State], batch: int, listed: str = "") -> str:
    if not states:
        if written.text == "" and random.random() < 0.3:
            return ""  # each request alone, or as is filled in
        return f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY} }}" if batch != 0 else ""
    turn = random.random() if batch > 3 else 1
    if 0.2 <= turn < 0.4 and not listed:
        written.about.append("free")
        written.parameters["sequences"] = "free"
        return f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY} }}"
    if turn < 0.2:
        written.about.append("direct")
        return (
            f"sequence_batching {{ {IDLE} direct {{ max_queue_delay_microseconds: {DELAY} "
            f"minimum_slot_utilization: 1 }} {listed} }}"
        )
    delay = f"max_queue_delay_microseconds: {DELAY}" if batch != 0 else "max_queue_delay_microseconds: 3000"
    return f"sequence_batching {{ {IDLE} oldest {{ max_candidate_sequences: 32 {delay} }} {listed} }}"


def tensor(spec: Spec, batch: int, nvidia: bool) -> str:
    """An input or output, in Triton's way or with all axes."""
    dims = [spec.sizes.get(role, -1) for role in spec.roles]
    if batch > 0 and spec.batch is not None and not (nvidia and dims[spec.batch] == -1):
        del dims[spec.batch]
    kind = TRITON_TYPES[spec.dtype]
    shape = f"dims: [ {', '.join(map(str, dims))} ]" if dims else "dims: [ 1 ] reshape: { shape: [ ] }"
    return f'{{ name: "{spec.name}" data_type: TYPE_{kind} {shape} }}'


def as_state(state: State) -> str:
    dims = [state.into.sizes.get(role, -1) for role in state.into.roles if role != BATCH]
    return (
        f'{{ input_name: "{state.into.name}" output_name: "{state.out.name}" '
        f"data_type: TYPE_{TRITON_TYPES[state.into.dtype]} dims: [ {', '.join(map(str, dims)) or '1'} ] }}"
    )
