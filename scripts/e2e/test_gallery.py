"""A gallery of models with the signatures of real ones: names, axes and types as toolkits export them, small weights.

Each is served right with the configuration that its users would write, mostly three lines, or refused with the
parameter that makes it right; scripts/trial.py decides.
"""

from dataclasses import replace

import pytest

import gallery_names
import gallery_recurrent
import gallery_speech
import gallery_text
import gallery_ties
import recipes
from modelsoak import Tally, serve
from servedcase import Case

GALLERY = {
    case.name: case
    for module in (gallery_names, gallery_ties, gallery_recurrent, gallery_text, gallery_speech, recipes)
    for case in module.LISTED
}
# These are right as soon as batch_axes says where the batch is: nothing else about them has to be found out.
BATCH_ALONE = [
    name for name, case in GALLERY.items()
    if case.decides == ("batch_axes",) and case not in recipes.LISTED and not name.endswith("_3_lines")
]  # fmt: skip


def told(case: Case) -> Case:
    return replace(case, name=f"{case.name}_told", parameters=case.parameters | case.whole_truth(), told=True)


@pytest.fixture(scope="module")
def tally(tmp_path_factory) -> Tally:
    """All of them, on one server; first as they are, then told."""
    cases = [*GALLERY.values(), *(told(GALLERY[name]) for name in BATCH_ALONE)]
    return serve(range(len(cases)), lambda index: cases[index], tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="module")
def faults(tally) -> dict[str, str]:
    """What was wrong, by the model's name."""
    return {case.name: f"{outcome.verdict.value}: {outcome.seen}" for _, case, outcome in tally.failures}


@pytest.mark.parametrize("name", GALLERY)
def test_served(faults, name):
    if name in faults:
        pytest.fail(faults[name], pytrace=False)


@pytest.mark.parametrize("name", BATCH_ALONE)
def test_served_when_told(faults, name):
    """Nothing but where the batch is stands between a model and right numbers: what the gallery says of it is true."""
    if f"{name}_told" in faults:
        pytest.fail(faults[f"{name}_told"], pytrace=False)


def test_requests_shared_batches(tally):
    assert tally.batched > len(GALLERY) / 3


def test_every_recipe_is_served():
    """Silero's is served in test_vad.py: the file of its authors."""
    assert recipes.TABLE == ["Exported by", *recipes.THREE_LINES]
    assert recipes.BLOCKS.keys() == {"recipe_three_lines", "recipe_silero", *recipes.NEED_MORE}
