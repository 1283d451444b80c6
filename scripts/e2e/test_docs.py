"""The configurations in the documentation load, each with the ONNX model that it is about, and the messages in README
are those of the server.

A block of a page that begins with backend: "stateful" is a configuration. Above it stands, in a comment that readers of
the page do not see, which model it belongs to: <!-- model: NAME --> is one of DOCUMENTED below.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from tritonclient.grpc.model_config_pb2 import TYPE_FP16, ModelConfig

import generate
import recipes
import vad
from configs import blocks
from conftest import Folder
from gallery_text import merged_decoder
from generate_streaming import STREAMING
from graphs import model, op, running_sum, tensor
from report import load_report
from test_bad_models import config, field, pairs, parameter, reset_control
from test_decoders import DECODERS
from test_masks import attention
from test_schedulers import with_inputs
from test_state_updates import delta
from tritonserver import MODELS as EXAMPLES
from tritonserver import ROOT

F32 = np.float32
# The pages, and how many configurations each has at least.
PAGES = {
    "README.md": 1,
    "docs/states.md": 9,
    "docs/batch-axes.md": 3,
    "docs/derived-inputs.md": 3,
    "docs/schedulers.md": 4,
    "docs/recipes.md": 9,
}


def recurrent() -> ModelProto:
    return model(
        op("ReduceMean", "audio -> mean", axes=[1], keepdims=1),
        op("Add", "h mean -> hn"),
        op("Add", "c hn -> cn"),
        op("ReduceMean", "cn -> speech", axes=[1], keepdims=1),
        inputs=[tensor("audio", F32, "batch", 512), tensor("h", F32, "batch", 64), tensor("c", F32, "batch", 64)],
        outputs=[tensor("speech", F32, "batch", 1), tensor("hn", F32, "batch", 64), tensor("cn", F32, "batch", 64)],
    )


def vad_like() -> ModelProto:
    return model(
        op("Cast", "sr -> rate", to=1),
        op("ReduceMean", "input -> mean", axes=[1], keepdims=1),
        op("Mul", "mean rate -> scaled"),
        op("Add", "state scaled -> stateN"),
        op("ReduceMean", "stateN -> lanes", axes=[0], keepdims=0),
        op("ReduceMean", "lanes -> output", axes=[1], keepdims=1),
        inputs=[tensor("input", F32, None, None), tensor("state", F32, 2, None, 128), tensor("sr", np.int64)],
        outputs=[tensor("output", F32, None, 1), tensor("stateN", F32, None, None, None)],
    )


def nameless() -> ModelProto:
    return model(
        op("Add", "memory frame -> memory_out"),
        op("Identity", "memory_out -> sum"),
        inputs=[tensor("frame", F32, None, None, 4), tensor("memory", F32, None, None, 4)],
        outputs=[tensor("sum", F32, None, None, 4), tensor("memory_out", F32, None, None, 4)],
    )


def derived() -> ModelProto:
    given = ["offset", "total", "frame"]
    return model(
        op("ReduceSum", "x one -> sum", keepdims=0),
        op("Add", "s sum -> s_out"),
        op("Identity", "s_out -> y"),
        *(op("Identity", f"{name} -> {name}_unused") for name in given),
        inputs=[tensor("x", F32, "batch", "time", 3), tensor("s", F32, "batch", 3)]
        + [tensor(name, np.int64, "batch", 1) for name in given],
        outputs=[tensor("y", F32, "batch", 3), tensor("s_out", F32, "batch", 3)]
        + [tensor(f"{name}_unused", np.int64, "batch", 1) for name in given],
        constants={"one": np.array([1])},
    )


def matting() -> ModelProto:
    return model(
        op("ReduceMean", "r1i -> before", axes=[2, 3], keepdims=1),
        op("Add", "src before -> r1o"),
        op("Identity", "r1o -> pha"),
        inputs=[
            tensor("src", F32, "batch", 3, "height", "width"),
            tensor("r1i", F32, "batch", "channels", "rows", "columns"),
        ],
        outputs=[
            tensor("pha", F32, "batch", 3, "height", "width"),
            tensor("r1o", F32, "batch", 3, "new_rows", "new_columns"),
        ],
    )


@dataclass(frozen=True)
class Documented:
    """A model of the documentation, and its files other than the ONNX file."""

    onnx: ModelProto
    files: dict[str, bytes]


def plain(made: ModelProto, **files: bytes) -> Documented:
    return Documented(made, {f"initial_state/{name.replace('_', '.')}": data for name, data in files.items()})


DOCUMENTED = {
    "sum": plain(running_sum("batch", 3), mean_bin=bytes(12)),
    "vad": plain(vad_like()),
    "recurrent": plain(recurrent()),
    "controls": plain(
        with_inputs({"START": (F32, [1]), "END": (np.int32, [1]), "READY": (bool, [1]), "CORRID": (np.uint64, [1])})
    ),
    "nameless": plain(nameless()),
    "derived": plain(derived()),
    "matting": plain(matting()),
    "masked": plain(attention()),
    "decoder": plain(DECODERS["masked"]),
    "delta": plain(delta()),
    "merged": plain(merged_decoder()),
    "double": plain(model(op("Add", "x x -> y"), inputs=[tensor("x", F32, "batch", 3)], outputs=[tensor("y", F32, "batch", 3)])),
    "recipe_three_lines": plain(recipes.LISTED[0].model),
    "recipe_silero": plain(onnx.load(vad.model_file())),
    **{name: Documented(recipe.model, recipe.files) for name, recipe in recipes.NEED_MORE.items()},
    **{name: Documented(example.model(), example.files) for name, example in STREAMING.items()},
}


FOUND = {f"{(ROOT / page).stem}_{number}": block for page in PAGES for number, block in enumerate(blocks(page))}

MODELS = {
    name: Folder(config, DOCUMENTED[of].onnx, DOCUMENTED[of].files) for name, (of, config) in FOUND.items() if of in DOCUMENTED
}


@pytest.mark.parametrize("name", FOUND)
def test_loads(own_server, own_client, name):
    assert name in MODELS, f"<!-- model: NAME --> with one of {', '.join(DOCUMENTED)} must stand above the block"
    assert own_client.is_model_ready(name), [line for line in own_server.log_text().splitlines() if f"'{name}'" in line]
    assert "is unknown and has no effect" not in load_report(own_server, name)


def test_every_page_has_configurations():
    for page, least in PAGES.items():
        assert len(blocks(page)) >= least, page


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and GitLab derive them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for file, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


def test_examples_are_described_where_they_are():
    """The pages name example models that exist."""
    for page in PAGES:
        for name in re.findall(r"`models/([a-z_]+)`", (ROOT / page).read_text()):
            assert (EXAMPLES / name / "config.pbtxt").exists(), name


def test_readme_shows_what_the_server_says(refusal):
    """All mistakes of its example at once. In README lines are broken."""

    def mistakes(made: ModelConfig) -> None:
        for change in [
            parameter("infer_end_requests", "no"),
            pairs("<<<Accumulate_In, Acumulate_Out>>>"),
            field("input", "data_type", TYPE_FP16),
            field("output", "name", "Outptu"),
            field("instance_group", "count", 1),
            reset_control(""),
        ]:
            change(made)
        made.name = "speech"

    (shown,) = re.findall(r"```\n(loading instance .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    said = refusal("speech", Folder(config(mistakes), generate.EXAMPLES["accumulate_fp32"].model()))
    assert said.split("Invalid argument: ")[1].rstrip(";\n").split() == shown.split()


def test_every_difference_from_nvidia_has_a_reason():
    tables = re.findall(r"^\|.*\|$", (ROOT / "docs" / "migrating-from-nvidia.md").read_text(), re.MULTILINE)
    assert len(tables) > 40
    assert not [row for row in tables if "" in (cell.strip() for cell in row[1:-1].split("|"))]
