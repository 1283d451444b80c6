"""scripts/vad.py: a model as its authors have exported it, served without a change."""

import subprocess
import sys
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import InferenceServerClient

import audio
import vad
from tritonserver import ROOT, TritonServer


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[InferenceServerClient]:
    with TritonServer(vad.write_repository(tmp_path_factory.mktemp("vad"))) as server:
        with InferenceServerClient(server.grpc_url) as client:
            yield client


def by_onnxruntime(samples: np.ndarray) -> np.ndarray:
    """The probabilities that ONNX Runtime alone gives, in the way that the model's authors run it."""
    session = onnxruntime.InferenceSession(vad.model_file(), providers=["CPUExecutionProvider"])
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
    answers = []
    for at in range(0, len(samples), 512):
        window = np.pad(samples[at : at + 512], (0, max(0, at + 512 - len(samples))))
        heard = np.concatenate([context, window])[np.newaxis]
        output, state = session.run(None, {"input": heard, "state": state, "sr": np.array(16000)})
        context = window[-64:]
        answers.append(output.item())
    return np.array(answers)


def test_probabilities(client):
    samples = audio.made_up()
    speech, _ = vad.probabilities(client, samples)
    np.testing.assert_allclose(speech, by_onnxruntime(samples), rtol=0, atol=1e-5)
    assert speech.max() > 0.9 and speech.min() < 0.1, "there must be both speech and silence"


def test_several_recordings_at_once(client):
    """Each recording is a sequence of its own, whatever shares its batches."""
    whole = audio.made_up()
    recordings = [whole[at * 4000 :][: 512 * 40 + 100 * at] * (1 - 0.1 * at) for at in range(6)]
    with ThreadPoolExecutor(len(recordings)) as pool:
        answers = pool.map(lambda at: vad.probabilities(client, recordings[at], 10 + at)[0], range(len(recordings)))
        for samples, speech in zip(recordings, answers, strict=True):
            np.testing.assert_allclose(speech, by_onnxruntime(samples), rtol=0, atol=1e-5)


def vad_script(*arguments: str | Path) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "scripts" / "vad.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_script(tmp_path):
    """A recording of another rate, with two channels."""
    recording = tmp_path / "recording.wav"
    samples = audio.made_up()[: audio.RATE * 3][::2]
    with wave.open(str(recording), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(audio.RATE // 2)
        file.writeframes((samples * 30000).astype("<i2").repeat(2).tobytes())
    done = vad_script(recording)
    assert done.returncode == 0, done.stderr
    assert "3.0 s" in done.stdout and "speech from" in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "No such file or directory", id="missing"),
        pytest.param(b"no sound", "want a WAV file of uncompressed PCM", id="not a WAV file"),
        pytest.param(b"", "it ends too soon: want a WAV file", id="empty"),
    ],
)
def test_recording_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "recording.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(audio.AudioError, match=message):
        audio.read_wav(path)


def test_script_says_what_is_wrong(tmp_path):
    done = vad_script(tmp_path / "recording.wav")
    assert done.returncode == 1
    assert done.stderr.startswith("vad.py: ") and "No such file" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_reads_numbers_of_every_width(tmp_path, width):
    path = tmp_path / "recording.wav"
    samples = np.array([0, 0.5, -0.5, 0.25])
    numbers = (samples * 2 ** (8 * width - 1)).astype(int) + (128 if width == 1 else 0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(audio.RATE)
        file.writeframes(b"".join(int(number).to_bytes(width, "little", signed=width > 1) for number in numbers))
    np.testing.assert_array_equal(audio.read_wav(path), samples.astype(np.float32))


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_resampling_keeps_a_tone(rate):
    def tone(rate: int) -> np.ndarray:
        return np.sin(2 * np.pi * 440 * np.arange(rate) / rate)

    np.testing.assert_allclose(audio.resample(tone(rate), rate), tone(audio.RATE), atol=1e-5)
