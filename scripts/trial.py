"""Tries a model on a real server: loads it, sends its sequences side by side, and judges every answer.

The verdict is one of Verdict. What is judged is what a user relies on: a model that loads answers every request with
the numbers that ONNX Runtime gives for the sequence alone, whatever others send; and a model that is refused is told
which parameter decides, and is served right with it.
"""

import enum
import itertools
import queue
import shutil
import time
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferResult
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from servedcase import Case, Sequence, Shapes, Tensors, Unservable, nothing_given
from tritonserver import ServerError, TritonServer

RTOL, ATOL = 1e-4, 1e-5
REQUEST_SECONDS = 60  # that an answer may take on a busy machine
CRASH_SECONDS = 10  # from the first lost connection to the end of the process

MANY = 1 << 20  # rows in a request where nothing limits them

_ids = itertools.count(1)


class Verdict(enum.Enum):
    """How a model is served, the good ones first."""

    RIGHT = "right"
    REFUSED = "refused, and right with the parameter"
    WRONG = "wrong numbers"
    FOREIGN = "numbers that depend on who else sends"
    SHAPE = "success with a wrong shape"
    DEAD = "ready, and every request fails"
    FAILED = "some requests fail"
    UNNAMED = "refused, and the message does not name the parameter"
    STUBBORN = "refused even with the parameter"
    LENIENT = "served, where it must be refused"
    CRASH = "the server has ended"

    @property
    def good(self) -> bool:
        return self in (Verdict.RIGHT, Verdict.REFUSED)


@dataclass(frozen=True)
class Outcome:
    """A verdict, what was seen, and whether requests shared a batch of Triton's."""

    verdict: Verdict
    seen: str = ""
    batched: bool = False


def try_case(server: TritonServer, client: InferenceServerClient, case: Case) -> Outcome:
    """Serves a model on a server in explicit mode whose repository is writable, and takes it away again."""
    try:
        refusal = load(server, case, case.name, None)
        if not refusal:
            outcome = judge(client, case, case.name)
            if case.refused:
                seen = f"its requests: {outcome.verdict.value}; {outcome.seen}"
                return Outcome(Verdict.LENIENT, seen, outcome.batched)
            return outcome
        if case.told or case.refused is False:
            return Outcome(Verdict.STUBBORN, refusal)
        if not any(word in refusal for word in case.decides):
            return Outcome(Verdict.UNNAMED, f"want {' or '.join(case.decides)}: {refusal}")
        remedy = {} if case.instead else case.whole_truth() if case.remedy is None else case.remedy
        remedied = case.instead or case
        again = load(server, remedied, case.name + "_told", remedy)
        if again:
            return Outcome(Verdict.STUBBORN, f"with {remedy}: {again}")
        outcome = judge(client, remedied, case.name + "_told")
        if outcome.verdict is Verdict.RIGHT:
            return Outcome(Verdict.REFUSED, refusal, outcome.batched)
        return Outcome(outcome.verdict, f"refused, then with {remedy}: {outcome.seen}", outcome.batched)
    except (InferenceServerException, ServerError, OSError):
        if not ends(server):
            raise
        return Outcome(Verdict.CRASH, server.log_tail(15))
    finally:
        for name in (case.name, case.name + "_told"):
            unload(server, name)


def ends(server: TritonServer) -> bool:
    """Whether the server has crashed, which takes it a moment."""
    deadline = time.monotonic() + CRASH_SECONDS
    while server.is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not server.is_running()


def load(server: TritonServer, case: Case, name: str, extra: dict[str, str] | None) -> str:
    """Loads the model; returns why it was refused, or nothing."""
    case.write(server.repository / name, extra)
    try:
        server.load(name)
    except ServerError as refused:
        return str(refused) or "refused without a word"
    return ""


def unload(server: TritonServer, name: str) -> None:
    folder = server.repository / name
    if not folder.exists():
        return
    if server.is_running():
        try:
            server.unload(name)
        except (ServerError, OSError):
            pass  # it was refused, so it is not there; or the server has just ended, which shows with the next model
    shutil.rmtree(folder)


def judge(client: InferenceServerClient, case: Case, name: str) -> Outcome:
    """Plays the case's sequences on the model of that name."""
    try:
        config = client.get_model_config(name).config
        # What the backend fills has one lane where it knows of no others.
        case = case.at_most(config.max_batch_size or (MANY if case.given is nothing_given else 1))
        shapes = Shapes.of(case, config)
        requests = [[shapes.request(feeds) for feeds in sequence] for sequence in case.sequences]
        wanted = [
            [{key: shapes.answer(key, value) for key, value in answer.items()} for answer in sequence]
            for sequence in case.answers()
        ]
    except Unservable as wrong:
        return Outcome(Verdict.SHAPE, str(wrong))
    got = play(client, name, requests, bool(case.states))
    batched = any(each.batch_size > 1 for each in client.get_inference_statistics(name).model_stats[0].batch_stats)
    fault = compare(got, wanted)
    if fault.verdict is Verdict.WRONG and len(requests) > 1:
        alone = [play(client, name, [sequence], bool(case.states))[0] for sequence in requests]
        if not alike(got, alone):
            return Outcome(Verdict.FOREIGN, f"{fault.seen}; alone {shown(alone, fault)}", batched)
    return Outcome(fault.verdict, fault.seen, batched)


# An answer to a request, or what the server said instead.
Answers = list[list[Tensors | InferenceServerException]]


def play(client: InferenceServerClient, name: str, sequences: list[Sequence], states: bool) -> Answers:
    """Sends a request of every sequence at the same time, step after step. A sequence ends with its first error."""
    ids = [next(_ids) for _ in sequences]
    answers: Answers = [[] for _ in sequences]
    done: queue.Queue = queue.Queue()
    for step in range(max(map(len, sequences))):
        waiting = 0
        for at, sequence in enumerate(sequences):
            if len(sequence) <= step or len(answers[at]) < step or failed(answers[at]):
                continue
            flags = {"sequence_id": ids[at], "sequence_start": step == 0, "sequence_end": step == len(sequence) - 1}
            client.async_infer(
                name,
                [tensor(key, value) for key, value in sequence[step].items()],
                lambda result, error, at=at: done.put((at, result, error)),
                client_timeout=REQUEST_SECONDS,
                **(flags if states else {}),
            )
            waiting += 1
        for _ in range(waiting):
            at, result, error = done.get(timeout=2 * REQUEST_SECONDS)
            answers[at].append(error or outputs(result))
    return answers


def failed(answers: list) -> bool:
    return bool(answers) and isinstance(answers[-1], InferenceServerException)


def tensor(name: str, value: np.ndarray) -> InferInput:
    return InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype)).set_data_from_numpy(value)


def outputs(result: InferResult) -> Tensors:
    return {each.name: result.as_numpy(each.name) for each in result.get_response().outputs}


@dataclass(frozen=True)
class Fault:
    """The worst of what was answered, and where it was first seen."""

    verdict: Verdict
    seen: str = ""
    sequence: int = 0
    step: int = 0
    output: str = ""


def compare(got: Answers, wanted: list[Sequence]) -> Fault:
    every = list(itertools.chain.from_iterable(got))
    errors = [each for each in every if isinstance(each, InferenceServerException)]
    if errors and len(errors) == len(every):
        return Fault(Verdict.DEAD, errors[0].message())
    for number, (answers, sequence) in enumerate(zip(got, wanted, strict=True)):
        for step, (answer, want) in enumerate(zip(answers, sequence)):
            if isinstance(answer, InferenceServerException):
                continue
            where = f"sequence {number}, step {step}"
            if answer.keys() != want.keys():
                return Fault(Verdict.SHAPE, f"{where}: outputs {list(answer)}, want {list(want)}")
            for name, value in want.items():
                if answer[name].shape != value.shape:
                    return Fault(Verdict.SHAPE, f"{where}: {name} has shape {answer[name].shape}, want {value.shape}")
                if not close(answer[name], value):
                    seen = f"{where}: {name} is {brief(answer[name])}, want {brief(value)}"
                    return Fault(Verdict.WRONG, seen, number, step, name)
    if errors:
        return Fault(Verdict.FAILED, errors[0].message())
    return Fault(Verdict.RIGHT)


def close(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether floats are close, and everything else is the same."""
    if want.dtype == object:
        return np.array_equal(got.astype(str), np.vectorize(text, otypes=[object])(want).astype(str))
    if got.dtype != want.dtype:
        return False
    if want.dtype.kind != "f":
        return np.array_equal(got, want)
    return np.allclose(got.astype(np.float64), want.astype(np.float64), RTOL, ATOL, equal_nan=True)


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def alike(one: Answers, other: Answers) -> bool:
    """Whether two plays were answered the same, errors aside."""
    for answers, others in zip(one, other):
        for a, b in zip(answers, others):
            if isinstance(a, InferenceServerException) or isinstance(b, InferenceServerException):
                continue
            if any(a[name].shape != b[name].shape or not close(a[name], b[name]) for name in a):
                return False
    return True


def shown(answers: Answers, fault: Fault) -> str:
    """What was answered at the place of a fault."""
    sequence = answers[fault.sequence]
    answer = sequence[fault.step] if fault.step < len(sequence) else "nothing"
    return brief(answer[fault.output]) if isinstance(answer, dict) else str(answer)


def brief(value: np.ndarray) -> str:
    numbers = [f"{v:.6g}" if value.dtype.kind == "f" else str(v) for v in value.ravel()[:6]]
    return f"{value.dtype}{list(value.shape)} [{' '.join(numbers)} …]"
