"""Finds the speech in a recording with Silero VAD, a third-party model, served by our backend.

    python3 scripts/vad.py [recording.wav]

Silero VAD comes from the PyPI package silero-vad, its ONNX file as it is. A tritonserver is started with it; the
recording is sent as one sequence, in requests of 32 ms, and each is answered with the probability of speech.
Without a recording, a sound like speech is made up. Run go run build.go first.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "build" / "venv" / "bin" / "python"

if importlib.util.find_spec("tritonclient") is None:  # another Python than that of the build
    if not PYTHON.exists() or Path(sys.prefix) == PYTHON.parent.parent:
        sys.exit("vad.py: there is no build/venv with the packages that it needs: run go run build.go")
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

import numpy as np  # noqa: E402
import tritonclient.grpc as grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import audio  # noqa: E402
from tritonserver import ServerError, TritonServer, exit_on_sigterm  # noqa: E402

WINDOW = 512  # samples: 32 ms, what the model wants at 16 kHz
CONTEXT = 64  # samples before the window that the model sees with it

# The state [2, batch, 128] has the batch on its middle axis, and begins with zeros: the model has no reset input. The
# sampling rate is the same for all sequences, so no client has to send it.
CONFIG = f"""
backend: "stateful"
max_batch_size: 64
input [{{ name: "input" data_type: TYPE_FP32 dims: [ {CONTEXT + WINDOW} ] }}]
output [{{ name: "output" data_type: TYPE_FP32 dims: [ 1 ] }}]
sequence_batching {{
  max_sequence_idle_microseconds: 60000000
  oldest {{ max_candidate_sequences: 1024 }}
}}
instance_group [{{ kind: KIND_CPU }}]
parameters {{ key: "state_pairs" value {{ string_value: "<<<state, stateN>>>" }} }}
parameters {{ key: "constant_inputs" value {{ string_value: "sr = {audio.RATE}" }} }}
"""
MODEL = "silero_vad"

SPEECH = 0.5  # the least probability that counts as speech


class VADError(Exception):
    """The script cannot do what it is for; the text is for its user."""


def model_file() -> Path:
    """The ONNX file in the installed package, which is not imported: that would need torch."""
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        raise VADError("the package silero-vad is not installed: run go run build.go")
    path = Path(found.origin).parent / "data" / "silero_vad.onnx"
    if not path.exists():
        raise VADError(f"the package silero-vad has no file {path}: want the version of scripts/requirements-nodeps.txt")
    return path


def write_repository(folder: Path) -> Path:
    """A model repository with Silero VAD alone."""
    version = folder / MODEL / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(model_file().read_bytes())
    (folder / MODEL / "config.pbtxt").write_text(CONFIG)
    return folder


def windows(samples: np.ndarray) -> np.ndarray:
    """The requests [count, 1, CONTEXT + WINDOW] for a recording: each begins with the end of the one before. The last
    window is filled up with silence."""
    count = -(-len(samples) // WINDOW)
    padded = np.zeros(CONTEXT + count * WINDOW, np.float32)
    padded[CONTEXT : CONTEXT + len(samples)] = samples
    return np.stack([padded[np.newaxis, at * WINDOW :][:, : CONTEXT + WINDOW] for at in range(count)])


def probabilities(client: grpc.InferenceServerClient, samples: np.ndarray, sequence: int = 1) -> tuple[np.ndarray, float]:
    """The probability of speech in each window, and how long a request took, in seconds."""
    requests = windows(samples)
    answers = []
    began = time.perf_counter()
    for number, window in enumerate(requests):
        given = grpc.InferInput("input", window.shape, "FP32").set_data_from_numpy(window)
        flags = {"sequence_start": number == 0, "sequence_end": number == len(requests) - 1}
        answers.append(client.infer(MODEL, [given], sequence_id=sequence, **flags).as_numpy("output").item())
        if number % 50 == 0:
            show_progress(f"{number} of {len(requests)} windows")
    show_progress("")
    return np.array(answers), (time.perf_counter() - began) / len(requests)


def show_progress(text: str) -> None:
    """Writes over the current line of a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


def segments(speech: np.ndarray) -> list[tuple[float, float]]:
    """Where speech begins and ends, in seconds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], speech >= SPEECH, [0]]).astype(int)))
    seconds = edges * WINDOW / audio.RATE
    return list(zip(seconds[::2].tolist(), seconds[1::2].tolist(), strict=True))


def sound(recording: Path | None) -> np.ndarray:
    """The recording, or one that is made here."""
    if recording is not None:
        samples = audio.read_wav(recording)
        print(f"{recording}: {len(samples) / audio.RATE:.1f} s")
        return samples
    samples = audio.made_up()
    print(f"{len(samples) / audio.RATE:.1f} s of made-up sound like speech, because no WAV file is given")
    return samples


def run(recording: Path | None) -> None:
    samples = sound(recording)
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder))
        print("starting tritonserver", flush=True)
        with TritonServer(repository) as server, grpc.InferenceServerClient(server.grpc_url) as client:
            speech, took = probabilities(client, samples)
    for start, end in segments(speech):
        print(f"speech from {start:6.2f} s to {end:6.2f} s")
    print(f"{len(speech)} requests, {1e3 * took:.2f} ms each for {1e3 * WINDOW / audio.RATE:g} ms of sound; "
          f"speech in {100 * np.mean(speech >= SPEECH):.0f} % of them")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, help="a WAV file of uncompressed PCM, of any rate")
    arguments = parser.parse_args()
    exit_on_sigterm()
    try:
        run(arguments.recording)
    except (VADError, audio.AudioError, ServerError, InferenceServerException, OSError) as failure:
        print(f"vad.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nvad.py: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
