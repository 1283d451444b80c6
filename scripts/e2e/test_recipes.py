"""The configurations of docs/recipes.md serve models with the signatures that they are for: every answer is compared with
ONNX Runtime, one sequence at a time."""

import re

import numpy as np
import onnx
import pytest

import vad
from conftest import Folder
from recipes import NEED_MORE, THREE_LINES, Recipe
from report import load_report
from sequences import Reference, check
from test_docs import blocks
from test_state_updates import decoder_reference, merged, tokens
from tritonserver import ROOT

F32 = np.float32
PAGE = "docs/recipes.md"
BLOCKS = dict(blocks(PAGE))
# Exports for a batch of 1, which is in their shapes and in those of requests.
ALONE = {"rsl_rl: recurrent policy", "FunASR: FSMN VAD", "TEN VAD", "GTCRN"}
ALONE |= {"recipe_wenet_cpu", "recipe_deep_filter", "recipe_int8"}
SERVED: dict[str, Recipe] = THREE_LINES | NEED_MORE


def folder_name(recipe: str) -> str:
    return re.sub(r"\W+", "_", recipe).strip("_")


def patient(block: str) -> str:
    """The configuration, with time for requests to meet in a batch."""
    return block.replace("oldest {", "oldest { max_queue_delay_microseconds: 20000")


MODELS = {
    folder_name(name): Folder(
        patient(BLOCKS["recipe_three_lines" if name in THREE_LINES else name]), recipe.model, recipe.files()
    )
    for name, recipe in SERVED.items()
} | {
    "recipe_merged_decoder": Folder(patient(BLOCKS["recipe_merged_decoder"]), merged),
    "recipe_silero": Folder(patient(BLOCKS["recipe_silero"]), vad.model_file().read_bytes()),
}


@pytest.mark.parametrize("name", SERVED)
def test_served(own_client, name):
    recipe, model = SERVED[name], folder_name(name)
    assert own_client.is_model_ready(model)
    random = np.random.default_rng(3)
    sequences = [recipe.requests(random, steps) for steps in (4, 4, 3, 4)]
    check(own_client, model, recipe.reference(), sequences, tolerance=1e-6, batched=name not in ALONE)


@pytest.mark.parametrize("name", ["optimum: decoder, `text-generation-with-past`", "recipe_masked_decoder"])
def test_sequences_of_unequal_length(own_client, name):
    recipe = SERVED[name]
    random = np.random.default_rng(4)
    sequences = [recipe.requests(random, 4, length) for length in (1, 2, 5)]
    check(own_client, folder_name(name), recipe.reference(), sequences, tolerance=1e-6, batched=False)


def test_merged_decoder(own_client):
    assert own_client.is_model_ready("recipe_merged_decoder")
    random = np.random.default_rng(6)
    sequences = [[tokens(random, start=step == 0) for step in range(4)] for _ in range(3)]
    for steps in sequences:
        for request in steps[1:]:  # as the page says, one frame is enough
            request["encoder_hidden_states"] = request["encoder_hidden_states"][:, :1]
    check(own_client, "recipe_merged_decoder", decoder_reference(), sequences, batched=False)


def test_silero(own_client):
    """The file of its authors, on noise."""
    assert own_client.is_model_ready("recipe_silero")
    reference = Reference(
        onnx.load(vad.model_file()), {"state": "stateN"}, {"state": np.zeros((2, 1, 128), F32)},
        axes={"state": 1, "stateN": 1, "sr": None}, given=lambda step, before: {"sr": np.array(16000)},
    )  # fmt: skip
    random = np.random.default_rng(5)
    sequences = [[{"input": random.normal(0, 0.1, (1, 576)).astype(F32)} for _ in range(4)] for _ in range(4)]
    check(own_client, "recipe_silero", reference, sequences, tolerance=1e-5)


def test_the_log_says_that_names_were_guessed(own_server, own_client):
    model = folder_name("GTCRN")
    assert own_client.is_model_ready(model)
    pairs = " ".join(f"<<<{name}, {name}_out>>>" for name in ("conv_cache", "tra_cache", "inter_cache"))
    line = f"guessed from the names: parameters {{ key: 'state_pairs' value {{ string_value: '{pairs}' }} }} model={model}"
    assert line in own_server.log_text()
    assert "conv_cache -> conv_cache_out state from the names in the model" in load_report(own_server, model)


def test_every_recipe_is_served():
    """What the page has is what is tested."""
    table = re.findall(r"^\| (.*?) \|", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert table[0] == "Exported by" and table[1:] == list(THREE_LINES)
    assert BLOCKS.keys() == {"recipe_three_lines", "recipe_merged_decoder", "recipe_silero", *NEED_MORE}
