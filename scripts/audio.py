"""Speech for scripts/vad.py: read from a file, spoken by espeak-ng, or made up."""

import shutil
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np

RATE = 16000  # samples a second, of everything that is returned here

TEXT = "Every sequence keeps its own state. This one is a sentence, and here is the next."


class AudioError(Exception):
    """There is no sound to be had."""


def read_wav(path: Path) -> np.ndarray:
    """The samples of a WAV file of uncompressed numbers, from -1 to 1; several channels are mixed."""
    try:
        with wave.open(str(path)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except OSError as failure:
        raise AudioError(str(failure)) from None
    except (EOFError, wave.Error) as failure:
        raise AudioError(f"{path}: {str(failure) or 'it ends too soon'}: want a WAV file of uncompressed PCM") from None
    samples = _numbers(data, width).reshape(-1, channels).mean(axis=1)
    if not len(samples):
        raise AudioError(f"{path}: there are no samples in it")
    return resample(samples, rate)


def _numbers(data: bytes, width: int) -> np.ndarray:
    raw = np.frombuffer(data, np.uint8)
    raw = raw[: len(raw) // width * width].reshape(-1, width)
    if width == 1:
        return (raw[:, 0].astype(np.float64) - 128) / 128
    wide = np.zeros((len(raw), 4), np.uint8)
    wide[:, 4 - width :] = raw  # little-endian, so the missing bytes are the lowest
    return wide.view("<i4")[:, 0] / 2**31


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """The same sound with RATE samples a second; what lies above half the lower rate is cut off."""
    count = round(len(samples) * RATE / rate)
    if rate == RATE or not count:
        return samples.astype(np.float32)
    spectrum = np.fft.rfft(samples)
    kept = np.zeros(count // 2 + 1, complex)
    common = min(len(kept), len(spectrum))
    kept[:common] = spectrum[:common]
    return (np.fft.irfft(kept, count) * count / len(samples)).astype(np.float32)


def spoken(text: str = TEXT) -> np.ndarray | None:
    """The text as espeak-ng speaks it, with a second of silence around; None if it is not installed."""
    program = shutil.which("espeak-ng") or shutil.which("espeak")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        made = subprocess.run([program, "-w", str(path), text], capture_output=True, text=True)
        if made.returncode != 0:
            raise AudioError(f"{program} fails: {made.stderr.strip()}")
        silence = np.zeros(RATE, np.float32)
        return np.concatenate([silence, read_wav(path), silence])


# Resonances of the mouth in Hz, of the vowels a, e, i, o and u.
VOWELS = [(730, 1090, 2440), (530, 1840, 2480), (270, 2290, 3010), (570, 840, 2410), (300, 870, 2240)]


def made_up() -> np.ndarray:
    """Something like speech: phrases of vowels with pauses, over faint noise; the same every time."""
    random = np.random.default_rng(0)
    parts = [np.zeros(RATE)]
    for _ in range(3):
        parts += [_syllable(random) for _ in range(6)] + [np.zeros(RATE)]
    samples = np.concatenate(parts)
    return (0.8 * samples / abs(samples).max() + 0.001 * random.standard_normal(len(samples))).astype(np.float32)


def _syllable(random: np.random.Generator) -> np.ndarray:
    """A hiss, then a vowel: pulses of a falling voice that resonances ring after."""
    length = int(RATE * random.uniform(0.16, 0.26))
    time = np.arange(length) / RATE
    pitch = random.uniform(110, 140) * (1 - 0.6 * time)
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0)
    sound = np.zeros(length)
    for frequency, loudness in zip(VOWELS[random.integers(len(VOWELS))], (1, 0.5, 0.25), strict=True):
        ring = np.exp(-80 * np.pi * time) * np.sin(2 * np.pi * frequency * time)
        sound += loudness * np.convolve(pulses, ring)[:length]
    swell = np.hanning(length) ** 0.25
    hiss = 0.15 * random.standard_normal(length // 4) * np.hanning(length // 4)
    return np.concatenate([hiss, sound / abs(sound).max() * swell])
