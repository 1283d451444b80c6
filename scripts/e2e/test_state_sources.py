"""Where the description of states comes from: parameters, sequence_batching, the model's doc string, its names."""

import numpy as np
import pytest
from onnx import ModelProto

from configs import config, io, oldest
from conftest import Folder
from graphs import model, op, tensor
from report import load_report
from sequences import Reference, check

F32 = np.float32
X, Y = [io("x", "FP32", 2)], [io("y", "FP32", 2)]
MANY = 160


def two_states(a: tuple[str, str], b: tuple[str, str], doc: str = "") -> ModelProto:
    """a' = a + x and b' = 2b + x, answered with 10a' - b': states that are mixed up give other answers."""
    states = [name for pair in (a, b) for name in pair]
    shaped = {name: tensor(name, F32, "batch", 2) for name in ["x", "y", *states]}
    return model(
        op("Add", f"{a[0]} x -> {a[1]}"),
        op("Mul", f"{b[0]} two -> twice"),
        op("Add", f"twice x -> {b[1]}"),
        op("Mul", f"{a[1]} ten -> tenfold"),
        op("Sub", f"tenfold {b[1]} -> y"),
        inputs=[shaped[name] for name in ("x", a[0], b[0])],
        outputs=[shaped[name] for name in ("y", a[1], b[1])],
        constants={"two": F32(2), "ten": F32(10)},
        doc=doc,
    )


def many_states() -> ModelProto:
    """Each state sums up its own multiple of x; the answer has them all."""
    lane = ["batch", 1]
    numbers = range(MANY)
    return model(
        *(op("Mul", f"x c{i} -> m{i}") for i in numbers),
        *(op("Add", f"cached_{i} m{i} -> new_cached_{i}") for i in numbers),
        op("Concat", f"{' '.join(f'new_cached_{i}' for i in numbers)} -> y", axis=1),
        inputs=[tensor("x", F32, *lane), *(tensor(f"cached_{i}", F32, *lane) for i in numbers)],
        outputs=[tensor("y", F32, "batch", MANY), *(tensor(f"new_cached_{i}", F32, *lane) for i in reversed(numbers))],
        constants={f"c{i}": F32(i) for i in numbers},
    )


def listed(*pairs: tuple[str, str]) -> str:
    """sequence_batching.state as for Triton's implicit state."""
    states = (
        f'{{ input_name: "{before}" output_name: "{after}" data_type: TYPE_FP32 dims: [2] '
        "use_same_buffer_for_input_output: true use_growable_memory: true }"
        for before, after in pairs
    )
    return f"state [{', '.join(states)}]"


PLAIN = (("left", "right"), ("up", "down"))  # names that tell nothing
ALIKE = (("hidden", "hidden_out"), ("prev_cell", "next_cell"))
# The outputs' names sort the other way round than the inputs'. Triton pairs its own states by that order (server#8586).
CROSSED = (("x_state", "x_state_next"), ("x_state_len", "x_state_len_next"))
INDEXED = (("cached_key_0", "new_cached_key_0"), ("cached_val_0", "new_cached_val_0"))
DOC = "Two sums.\nInputState, OutputState: <<<left: first sum, right>>> <<<up, down: second sum>>>\n"


def sourced(names, scheduler: str | None = None, doc: str = "", **parameters: str) -> Folder:
    return Folder(config(X, Y, scheduler, **parameters), two_states(*names, doc=doc))


def quoted(*pairs: tuple[str, str]) -> str:
    return ", ".join(f"<<<{before}, {after}>>>" for before, after in pairs)


SOURCES = {
    "state_pairs": (PLAIN, sourced(PLAIN, state_pairs=quoted(*PLAIN))),
    "state_pairs_reversed": (PLAIN, sourced(PLAIN, state_pairs=quoted(*reversed(PLAIN)))),
    "state_list": (PLAIN, sourced(PLAIN, oldest(3, listed(*PLAIN)))),
    "both": (PLAIN, sourced(PLAIN, oldest(3, listed(PLAIN[1])), state_pairs=quoted(*PLAIN))),
    "one_each": (PLAIN, sourced(PLAIN, oldest(3, listed(PLAIN[1])), state_pairs=quoted(PLAIN[0]))),
    "pattern": (INDEXED, sourced(INDEXED, state_pairs=quoted(("cached_*_{i}", "new_cached_*_{i}")))),
    "doc_string": (PLAIN, sourced(PLAIN, doc=DOC)),
    "names": (ALIKE, sourced(ALIKE)),
    "crossed_list": (CROSSED, sourced(CROSSED, oldest(3, listed(*CROSSED)))),
    "crossed_names": (CROSSED, sourced(CROSSED)),
}

MODELS = {name: folder for name, (_, folder) in SOURCES.items()} | {
    "many": Folder(config([io("x", "FP32", 1)], [io("y", "FP32", MANY)]), many_states()),
    "many_by_pattern": Folder(
        config([io("x", "FP32", 1)], [io("y", "FP32", MANY)], state_pairs=quoted(("cached_{i}", "new_cached_{i}"))),
        many_states(),
    ),
}


def numbers(width: int) -> list[list[dict[str, np.ndarray]]]:
    """Whole numbers, which sum up without rounding."""
    random = np.random.default_rng(0)
    return [[{"x": random.integers(-9, 10, (1, width)).astype(F32)} for _ in range(4)] for _ in range(3)]


@pytest.mark.parametrize("name", SOURCES)
def test_source(own_client, name):
    names, folder = SOURCES[name]
    check(own_client, name, Reference(folder.onnx, dict(names)), numbers(2))


@pytest.mark.parametrize("name", ["many", "many_by_pattern"])
def test_many_states(own_client, name):
    states = {f"cached_{i}": f"new_cached_{i}" for i in range(MANY)}
    check(own_client, name, Reference(MODELS[name].onnx, states), numbers(1))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("state_pairs", "left -> right state from state_pairs"),
        ("state_list", "left -> right state from sequence_batching.state"),
        ("doc_string", "up -> down state from the model's doc string"),
        ("names", "prev_cell -> next_cell state from the names in the model"),
    ],
)
def test_report_says_where_a_state_comes_from(own_server, name, source):
    assert f"{source}, begins with zeros" in load_report(own_server, name)
