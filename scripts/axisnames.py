"""How exporters name the axes of a model: with care, half, in their own way, or not at all."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

# Roles of axes. What a role stands for is true of the model, whatever its axis is called.
BATCH, TIME, OUT_TIME, PAST, PRESENT = "B", "T", "T'", "P", "P'"


@dataclass(frozen=True)
class Spec:
    """An input or output of a model: the roles of its axes, in order.

    sizes   extents by role; a role without one is dynamic
    """

    name: str
    dtype: type | np.dtype
    roles: tuple[str, ...]
    sizes: dict[str, int] = field(default_factory=dict)
    output: bool = False

    @property
    def batch(self) -> int | None:
        return self.roles.index(BATCH) if BATCH in self.roles else None

    @property
    def dynamic(self) -> list[int]:
        return [axis for axis, role in enumerate(self.roles) if role not in self.sizes]

    def shape(self, extents: dict[str, int]) -> tuple[int, ...]:
        """With these extents for what is dynamic."""
        return tuple(self.sizes.get(role, extents.get(role, 0)) for role in self.roles)


# The names of one tensor's axes; None is an axis without one.
Names = dict[str, list[str | None]]
Scheme = Callable[[np.random.Generator, list[Spec]], Names]

BATCHES = ["batch", "batch_size", "N", "B", "bs", "b", "n", "Batch", "BATCH"]
TIMES = ["time", "T", "frames", "seq", "sequence_length", "length", "t"]
STRANGE = ["streams", "lanes", "num_calls", "dim0", "i", "rows"]


def pick(random: np.random.Generator, of: Iterable[str]) -> str:
    options = list(of)
    return options[int(random.integers(len(options)))]


def by_role(specs: list[Spec], names: dict[str, str | None], outputs: bool = True) -> Names:
    """Every axis of a role gets the same name; those of outputs only if wanted."""
    return {
        spec.name: [names.get(role) if axis in spec.dynamic and (outputs or not spec.output) else None
                    for axis, role in enumerate(spec.roles)]
        for spec in specs
    }  # fmt: skip


def lengths(random: np.random.Generator) -> dict[str, str | None]:
    """Names of everything but the batch."""
    time = pick(random, TIMES)
    return {
        TIME: time,
        OUT_TIME: pick(random, [time + "_out", f"({time} - 4)//2 + 1", "subsampled"]),
        PAST: pick(random, ["past", "past_len", "kv_len", "cache_len"]),
        PRESENT: pick(random, [f"past_len + {time}", "total", "present_len"]),
    }


def careful(random: np.random.Generator, specs: list[Spec]) -> Names:
    return by_role(specs, lengths(random) | {BATCH: pick(random, BATCHES)})


def strange(random: np.random.Generator, specs: list[Spec]) -> Names:
    """A name on every tensor, but none that says batch."""
    return by_role(specs, lengths(random) | {BATCH: pick(random, STRANGE)})


def dynamo(random: np.random.Generator, specs: list[Spec]) -> Names:
    """torch.export numbers its symbols."""
    s = [f"s{number}" for number in random.permutation(100)[:3]]
    names = {BATCH: s[0], TIME: s[1], PAST: s[2], PRESENT: f"{s[1]} + {s[2]}", OUT_TIME: f"(({s[1]} - 5)//2) + 1"}
    return by_role(specs, names)


def letters(random: np.random.Generator, specs: list[Spec]) -> Names:
    """One letter each, that of the batch among those of batches or not."""
    batch, time = [("n", "a"), ("b", "t"), ("x", "y"), ("i", "n")][int(random.integers(4))]
    return by_role(specs, {BATCH: batch, TIME: time, OUT_TIME: "o", PAST: "p", PRESENT: "q"})


def inputs_only(random: np.random.Generator, specs: list[Spec]) -> Names:
    """dynamic_axes for the inputs alone: TorchScript calls the outputs' axes after the node that writes them."""
    names = careful(random, specs)
    for spec in specs:
        if spec.output:
            node = pick(random, ["Add", "ReduceMean", "Concat", "Slice"])
            names[spec.name] = [f"{node}{spec.name}_dim_{axis}" if axis in spec.dynamic else None
                                for axis in range(len(spec.roles))]  # fmt: skip
    return names


def as_list(spec: Spec) -> list[str | None]:
    """dynamic_axes as a list: a name for each axis of each tensor."""
    return [
        f"{spec.name}_dynamic_axes_{spec.dynamic.index(axis) + 1}" if axis in spec.dynamic else None
        for axis in range(len(spec.roles))
    ]


def lists(_random: np.random.Generator, specs: list[Spec]) -> Names:
    return {spec.name: as_list(spec) for spec in specs}


def each_its_own(random: np.random.Generator, specs: list[Spec]) -> Names:
    """x_batch, x_time, h_batch and so on."""
    names = by_role(specs, lengths(random) | {BATCH: "batch"})
    return {spec.name: [name and f"{spec.name}_{name}" for name in names[spec.name]] for spec in specs}


def batch_alone(random: np.random.Generator, specs: list[Spec]) -> Names:
    """Only the batch has a name."""
    return by_role(specs, {BATCH: pick(random, BATCHES)})


def lengths_alone(random: np.random.Generator, specs: list[Spec]) -> Names:
    """All but the batch have a name."""
    return by_role(specs, lengths(random))


def without_states(random: np.random.Generator, specs: list[Spec]) -> Names:
    """Some tensors are named with care, others not at all."""
    names = careful(random, specs)
    return {name: axes if random.random() < 0.6 else [None] * len(axes) for name, axes in names.items()}


def nameless(_random: np.random.Generator, specs: list[Spec]) -> Names:
    return {spec.name: [None] * len(spec.roles) for spec in specs}


# With how often each is drawn.
SCHEMES: dict[Scheme, int] = {
    careful: 5, strange: 3, dynamo: 3, letters: 2, inputs_only: 4, lists: 3, each_its_own: 2, batch_alone: 2,
    lengths_alone: 1, without_states: 2, nameless: 4,
}  # fmt: skip
