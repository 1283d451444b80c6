"""tritonstateful init, then a real server, then tritonstateful check, unattended, for the models of the gallery.

What is open, init says, and the parameter that it names decides it.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from servedcase import Case
from test_command import COMMAND
from test_gallery import GALLERY
from tritonserver import NO_METRICS, ServerError, TritonServer


@dataclass(frozen=True)
class Tried:
    """What became of a model: whether init had a question first, what was wrong, and what check has reported."""

    asked: bool
    fault: str = ""
    report: dict | None = None


def command(*arguments: str) -> tuple[int, dict]:
    done = subprocess.run([COMMAND, "--json", *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, json.loads(done.stdout)


def init(case: Case, name: str, folder: Path, repository: Path, extra: dict[str, str] | None = None) -> tuple[int, dict]:
    """Has a model's folder made, with what its users would have to say of it as the beginning."""
    source = folder / name
    case.write(source, extra)
    given = ["--config", str(source / "config.pbtxt"), "--name", name, "--repository", str(repository)]
    return command("init", str(source / "1" / "model.onnx"), *given)


def tried(case: Case, folder: Path, server: TritonServer) -> Tried:
    name, repository = case.name, server.repository
    code, made = init(case, name, folder, repository)
    asked = code == 2
    if asked:
        told = case.instead or case
        extra = {} if case.instead else case.whole_truth() if case.remedy is None else case.remedy
        code, made = init(told, name, folder / "told", repository, extra)
    if code:
        return Tried(asked, f"init: {made}")
    try:
        server.load(name)  # and not unloaded at once: with other models on their way, that crashes Triton 2.51
    except ServerError as refused:
        return Tried(asked, f"the server: {refused}\n{made['config']}")
    code, report = command("check", made["directory"])
    return Tried(asked, "" if code == 0 else f"check: {report}\n{made['config']}", report)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, Tried]:
    folder, repository = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("repository")
    options = [NO_METRICS, "--log-info=false", "--log-warning=false"]
    with TritonServer(repository, explicit=True, options=options) as server, ThreadPoolExecutor(2) as pool:
        return dict(zip(GALLERY, pool.map(lambda case: tried(case, folder, server), GALLERY.values()), strict=True))


@pytest.mark.parametrize("name", GALLERY)
def test_made_served_and_checked(outcomes, name):
    if outcomes[name].fault:
        pytest.fail(outcomes[name].fault, pytrace=False)


def test_the_comparisons_compared(outcomes):
    """Most models have states that were restored, and batches; few need a question answered."""
    results = [{one["name"]: one for one in outcome.report["results"]} for outcome in outcomes.values() if outcome.report]
    assert len(results) >= 25
    for name in ("batched", "permuted", "restored"):
        compared = sum(one[name]["verdict"] in ("same bits", "within tolerance") and one[name]["values"] > 0 for one in results)
        assert compared > len(results) / 2, name
    assert sum(outcome.asked for outcome in outcomes.values()) < len(outcomes) / 5
