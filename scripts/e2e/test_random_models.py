"""Random models are served right, or refused with the parameter that makes them right (scripts/modelsoak.py).

go run build.go soak --models N serves more of them. That what is wrong is seen at all is tested first.
"""

import re
import signal
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient

import modelsoak
import tritonserver
from configs import config, io
from graphs import model, op, tensor
from modelsoak import Tally, serve, story
from randomcase import random_case
from servedcase import Case
from trial import Verdict, judge, load, unload

F32 = np.float32
SEED, MODELS = 7, 200
PRINTED = re.compile(r"parameters \{ key: '(\w+)' value \{ string_value: '([^']*)' \} \}")


def smooth(*, over_lanes: bool = False, weight: float = 1, keep: bool = True) -> ModelProto:
    """A convolution over time and a running sum; over_lanes adds what all lanes have, as if it were a part of the model."""
    wide = [op("ReduceMean", "x -> all", axes=[0], keepdims=1), op("Add", "x all -> mixed")]
    return model(
        *(wide if over_lanes else [op("Identity", "x -> mixed")]),
        op("Conv", "mixed w -> windows", group=2),
        op("ReduceMean", "windows -> mean", axes=[2], keepdims=0),
        op("Add", "s mean -> s_out"),
        op("Identity", "s_out -> y") if keep else op("ReduceMean", "s_out -> y", axes=[1], keepdims=1),
        inputs=[tensor("x", F32, "batch", 2, "time"), tensor("s", F32, "batch", 2)],
        outputs=[tensor("y", F32, "batch", 2 if keep else 1), tensor("s_out", F32, "batch", 2)],
        constants={"w": np.full((2, 1, 3), weight, F32)},
    )


def nameless() -> ModelProto:
    return model(
        op("Add", "x s -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("x", F32, None, None, 2), tensor("s", F32, None, None, 2)],
        outputs=[tensor("y", F32, None, None, 2), tensor("s_out", F32, None, None, 2)],
    )


def example(onnx: ModelProto, *lengths: int, taken: int = -1, **more) -> Case:
    """Three sequences of requests of these lengths, of which the configuration takes one or all."""
    random = np.random.default_rng(0)
    return Case(
        name="example",
        model=onnx,
        config=config([io("x", "FP32", 2, taken)], [io("y", "FP32", 2)]),
        batch={"x": 0, "s": 0, "y": 0, "s_out": 0},
        outputs=("y",),
        sequences=[[{"x": random.standard_normal((1, 2, length)).astype(F32)} for length in lengths] for _ in range(3)],
        states={"s": "s_out"},
        initial={"s": np.zeros((1, 2), F32)},
        **more,
    )


def unclear(**more) -> Case:
    """A model that is refused without batch_axes."""
    random = np.random.default_rng(0)
    return Case(
        name="unclear",
        model=nameless(),
        config=config([io("x", "FP32", 3, 2)], [io("y", "FP32", 3, 2)]),
        parameters={"initial_states": "s = 0[3,2]"},
        batch={"x": 1, "s": 1, "y": 1, "s_out": 1},
        outputs=("y",),
        sequences=[[{"x": random.standard_normal((3, 1, 2)).astype(F32)} for _ in range(2)] for _ in range(2)],
        states={"s": "s_out"},
        initial={"s": np.zeros((3, 1, 2), F32)},
        **more,
    )


TOLD = {"batch_axes": "* = 0"}

# What is wrong with a model, or with what is known of it, and the verdict.
JUDGED = {
    "right": (example(smooth(), 4, 5, 3), Verdict.RIGHT),
    "lanes_are_mixed": (example(smooth(over_lanes=True), 4, 5, parameters=TOLD), Verdict.FOREIGN),
    "other_weights": (example(smooth(), 4, 5, reference=smooth(weight=1.001)), Verdict.WRONG),
    "other_shape": (example(smooth(), 4, reference=smooth(keep=False)), Verdict.SHAPE),
    "none_is_taken": (example(smooth(), 4, 5, taken=64), Verdict.DEAD),
    "some_are_taken": (example(smooth(), 4, 5, taken=4), Verdict.FAILED),
    "refused": (unclear(), Verdict.REFUSED),
    "for_another_reason": (unclear(decides=("state_pairs",)), Verdict.UNNAMED),
    "with_a_useless_remedy": (unclear(remedy={"when_full": "evict_lru"}), Verdict.STUBBORN),
    "though_it_is_told": (unclear(refused=False), Verdict.STUBBORN),
    "not_refused": (example(smooth(), 4, refused=True), Verdict.LENIENT),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> dict[str, Verdict]:
    """All of these, on one server."""
    names = list(JUDGED)

    def make(index: int) -> Case:
        return replace(JUDGED[names[index]][0], name=names[index])

    tally = serve(range(len(names)), make, tmp_path_factory.mktemp("judged"))
    return {names[index]: verdict for index, verdict in tally.verdicts.items()}


@pytest.mark.parametrize("name", JUDGED)
def test_verdict(judged, name):
    """What is wrong is seen, and called what it is."""
    assert judged[name] is JUDGED[name][1]


def test_a_crash_is_told_from_its_neighbours(tmp_path):
    """The model under which the server ends is found among those that were tried at the same time."""

    def make(index: int) -> Case:
        if index == 2:
            tritonserver.running()[-1].signal(signal.SIGKILL)
        return random_case(SEED, index, told=True)

    tally = serve(range(5), make, tmp_path)
    assert [(index, outcome.verdict) for index, _, outcome in tally.failures] == [(2, Verdict.CRASH)]
    assert len(tally.verdicts) == 5


def test_every_model_is_tried(tmp_path, monkeypatch):
    """Also where one server ends after its share, and the next begins."""
    monkeypatch.setattr(modelsoak, "MODELS_A_SERVER", 2)
    tally = serve(range(5), lambda index: random_case(SEED, index, told=True), tmp_path)
    assert sorted(tally.verdicts) == [0, 1, 2, 3, 4]


def test_a_model_is_always_the_same():
    """Of a seed and a number."""
    for index in range(20):
        one, again = random_case(SEED, index), random_case(SEED, index)
        assert one.model.SerializeToString() == again.model.SerializeToString()
        assert one.text() == again.text()
        for a, b in zip(one.sequences, again.sequences, strict=True):
            assert [{name: value.tolist() for name, value in step.items()} for step in a] == [
                {name: value.tolist() for name, value in step.items()} for step in b
            ]


def check(tally: Tally) -> None:
    if tally.failures:
        pytest.fail("\n".join([*(story(SEED, *failure) for failure in tally.failures), str(tally)]), pytrace=False)
    assert tally.batched > len(tally.verdicts) / 4, "too few requests shared a batch"


def test_random_models(tmp_path):
    """Each is right, or refused and right with the parameter that the refusal names."""
    tally = serve(range(MODELS), lambda index: random_case(SEED, index), tmp_path)
    assert len(tally.verdicts) == MODELS
    check(tally)


def test_random_models_that_are_told(tmp_path):
    """Where the configuration says where the batch is, nothing is refused: these models are what they are said to be."""
    check(serve(range(MODELS // 3), lambda index: random_case(SEED, index, told=True), tmp_path))


# Models whose batch is at different positions, fixed at 1, or shared by a state, or whose names say little. They were
# refused without a line, or with one that served them wrong.
LINES = {
    7101: [8, 71, 124, 176], 7102: [84, 390, 424], 7103: [29, 55, 82, 149, 256, 402, 421], 7104: [2, 18, 218, 379, 393],
    7105: [265], 9002: [37, 106, 241, 256, 331, 356, 447],
}  # fmt: skip


def test_the_line_of_a_refusal(tmp_path):
    """With what the refusal prints, pasted, the model is served right."""
    wrong = []
    options = ["--log-info=false", "--log-warning=false"]
    with (
        tritonserver.TritonServer(tmp_path, explicit=True, options=options) as server,
        InferenceServerClient(server.grpc_url) as client,
    ):
        for seed, indices in LINES.items():
            for index in indices:
                case = random_case(seed, index)
                refusal = load(server, case, case.name, None)
                if refusal:
                    refusal = load(server, case, case.name, dict(PRINTED.findall(refusal)))
                outcome = refusal or judge(client, case, case.name)
                if refusal or outcome.verdict is not Verdict.RIGHT:
                    wrong.append(f"{case.name}, {case.about}: {outcome}")
                unload(server, case.name)
    assert not wrong, "\n".join(wrong)
