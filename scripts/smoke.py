"""Smoke test: sequences keep their states in the backend, inside a real tritonserver.

Starts the server on free ports with the models next to this file, streams interleaved sequences to each of them with
the official client, and compares every answer with numbers computed in numpy. Needs the packages in requirements.txt.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

try:
    import numpy as np
    from tritonclient.grpc import InferenceServerClient
    from tritonclient.utils import InferenceServerException
except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    requirements = Path(__file__).resolve().with_name("requirements.txt")
    sys.exit(f"smoke.py: this Python has no {missing.name}: python3 -m pip install -r {requirements}")

import accumulate
from smokemodels import MODELS
from streaming import Answer, Model, Stream, StreamError, Tensor
from tritonserver import ServerError, TritonServer, exit_on_sigterm, show

MISTAKES_SHOWN = 5


@dataclass
class Result:
    """What came of the sequences that a model was sent."""

    title: str
    sequences: int
    steps: int
    requests: int = 0
    mean_batch: float = float("nan")
    latencies: list[float] = field(default_factory=list)  # seconds
    mistakes: list[str] = field(default_factory=list)

    def row(self) -> list[str]:
        p50, p99 = np.percentile(self.latencies, [50, 99]) if self.latencies else (float("nan"), float("nan"))
        return [
            self.title,
            str(self.sequences),
            str(self.steps),
            str(self.requests),
            f"{self.mean_batch:.1f}",
            f"{1e3 * p50:.1f}",
            f"{1e3 * p99:.1f}",
            "FAILED" if self.mistakes else "ok",
        ]


COLUMNS = ["model", "sequences", "steps", "requests", "mean batch", "p50 ms", "p99 ms", "result"]


def run(server: TritonServer, models: list[str], sequences: int, steps: int, keep_serving: bool = False) -> int:
    """Tests the models on a server, which it starts and stops, and returns the exit code."""
    exit_on_sigterm()
    try:
        print("starting tritonserver", flush=True)
        with server:
            results = [result for name in models for result in test_model(server, name, sequences, steps)]
            passed = not any(result.mistakes for result in results)
            print("\n" + table([COLUMNS, *(result.row() for result in results)]))
            if not passed:
                print(f"\nThe end of the server's log, {server.log}:\n{server.log_tail()}")
            print("\nPASSED" if passed else "\nFAILED", flush=True)
            if keep_serving:
                with contextlib.suppress(KeyboardInterrupt):
                    show(server)
                    server.wait()
    except ServerError as failure:
        print(f"{failure}\n\nFAILED")
        return 1
    return 0 if passed else 1


def test_model(server: TritonServer, name: str, sequences: int, steps: int) -> list[Result]:
    """Streams random sequences to a model, and before that those whose answers are known, if there are any."""
    known, random = Result(f"{name}, known", 2, 3), Result(name, sequences, steps)
    with InferenceServerClient(server.grpc_url) as client:
        try:
            model = Model.on(client, name)
        except InferenceServerException as failure:
            random.mistakes.append(str(failure))
            return [conclude(random)]
        results = []
        if name.startswith("accumulate"):
            results.append(drive(client, model, accumulate.known_sequences(model), known))
        results.append(drive(client, model, accumulate.random_sequences(model, sequences, steps), random))
        return results


def drive(client: InferenceServerClient, model: Model, sequences: list[accumulate.Sequence], result: Result) -> Result:
    """Streams the sequences to the model and fills in the result."""
    try:
        inferences, batches = counts(client, model)
        with Stream(client) as stream:
            Drive(stream, model, sequences, result).run()
        inferences_now, batches_now = counts(client, model)
        result.mean_batch = (inferences_now - inferences) / max(batches_now - batches, 1)
    except (StreamError, InferenceServerException) as failure:
        result.mistakes.append(f"after {result.requests} answers: {failure}")
    return conclude(result)


def counts(client: InferenceServerClient, model: Model) -> tuple[int, int]:
    """How many requests, and in how many batches, the server has run for the model."""
    statistics = client.get_inference_statistics(model.name).model_stats[0]
    return statistics.inference_count, statistics.execution_count


class Drive:
    """Runs sequences side by side, each with one request in flight, and checks their answers."""

    def __init__(self, stream: Stream, model: Model, sequences: list[accumulate.Sequence], result: Result):
        self.stream, self.model, self.sequences, self.result = stream, model, sequences, result
        self.total = sum(len(sequence.requests) for sequence in sequences)
        self.sent: dict[str, float] = {}  # when, by the request's ID: the number of its sequence and its step

    def run(self) -> None:
        for number in range(len(self.sequences)):
            self.send(number, 0)
        while self.sent:
            answer = self.stream.receive()
            self.result.latencies.append(answer.arrived - self.sent.pop(answer.request))
            self.result.requests += 1
            self.check(answer)
            show_progress(f"{self.result.title}: {self.result.requests} of {self.total} requests")

    def send(self, number: int, step: int) -> None:
        sequence = self.sequences[number]
        request = sequence.requests[step]
        label = f"{number}_{step}"
        self.sent[label] = time.perf_counter()
        self.stream.send(self.model, sequence.id, request.inputs, request=label, start=request.start, end=request.end)

    def check(self, answer: Answer) -> None:
        """Checks an answer and sends the sequence's next request."""
        number, step = map(int, answer.request.split("_"))
        sequence = self.sequences[number]
        for tensor in self.model.outputs:
            if mistake := difference(tensor, answer, sequence.requests[step].expected):
                self.result.mistakes.append(f"sequence {sequence.id}, step {step}: {tensor.name} {mistake}")
        if step + 1 < len(sequence.requests):
            self.send(number, step + 1)


def difference(tensor: Tensor, answer: Answer, expected: dict[str, np.ndarray] | None) -> str:
    """Says in what an output differs from what is expected; empty if in nothing."""
    output = answer.result.get_output(tensor.name)
    if output is None:
        return "is missing"
    # The answer to a request that only ends its sequence has as many axes as any other, all of extent 1.
    shape = tensor.answer_shape if expected else (1,) * len(tensor.answer_shape)
    if output.datatype != tensor.datatype or tuple(output.shape) != shape:
        return f"is {output.datatype} {list(output.shape)}, want {tensor.datatype} {list(shape)}"
    if not expected:
        return ""
    values, want = answer.result.as_numpy(tensor.name), expected[tensor.name]
    wrong = np.argwhere(values != want)
    if not len(wrong):
        return ""
    at = tuple(wrong[0])
    return f"is {values[at]} at {list(map(int, at))}, want {want[at]}; {len(wrong)} of {want.size} elements are wrong"


def conclude(result: Result) -> Result:
    """Prints what came of a model's sequences, where the progress was."""
    mistakes = result.mistakes
    show_progress("")
    print(f"{result.title}: {result.requests} requests, {len(mistakes) or 'no'} mistakes", flush=True)
    for mistake in mistakes[:MISTAKES_SHOWN]:
        print(f"  {mistake}")
    if len(mistakes) > MISTAKES_SHOWN:
        print(f"  and {len(mistakes) - MISTAKES_SHOWN} more")
    return result


def show_progress(text: str) -> None:
    """Writes over the current line of a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


def table(rows: list[list[str]]) -> str:
    """Aligns rows of cells: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]) for row in rows
    )


def main() -> int:
    """Tests an unpacked release: this file is in its folder examples."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tritonserver", type=Path, default=shutil.which("tritonserver") or "/opt/tritonserver/bin/tritonserver",
        metavar="FILE", help="the server (default: that of the PATH, else /opt/tritonserver/bin/tritonserver)")  # fmt: skip
    add("--backends", type=Path, default=here.parent / "backends", metavar="DIR",
        help="the folder that has the folder stateful (default: that of this release)")  # fmt: skip
    add("--sequences", type=int, default=32, metavar="N", help="sequences at the same time (default: 32)")
    add("--steps", type=int, default=10, metavar="N", help="requests of a sequence (default: 10)")
    add("--timeout", type=float, default=60, metavar="S", help="seconds that the server may take to be ready (default: 60)")
    options = parser.parse_args()
    if not options.tritonserver.is_file():
        parser.error(f"there is no {options.tritonserver}: name the server with --tritonserver")
    log = Path(tempfile.mkdtemp(prefix="smoke-")) / "tritonserver.log"
    os.environ["TRITONSERVER"] = str(options.tritonserver)
    server = TritonServer(here / "models", options.backends, log=log, timeout=options.timeout)
    code = run(server, MODELS, options.sequences, options.steps)
    if code == 0:
        shutil.rmtree(log.parent)
    return code


if __name__ == "__main__":
    sys.exit(main())
