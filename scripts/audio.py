"""Speech for scripts/vad.py: read from a file, or made up."""

import wave
from pathlib import Path

import numpy as np

RATE = 16000  # samples a second, of everything that is returned here


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


def made_up() -> np.ndarray:
    """Three spoken words, about: a voice that falls from 140 to 80 Hz, three resonances of a vowel, and pauses of faint noise."""
    time = np.arange(RATE) / RATE
    voice = np.diff(np.floor(time * (140 - 30 * time)), prepend=0)
    rings = [
        loud * np.exp(-250 * time) * np.sin(2 * np.pi * hertz * time) for hertz, loud in ((730, 1), (1090, 0.5), (2440, 0.25))
    ]
    vowel = sum(np.convolve(voice, ring)[:RATE] for ring in rings)
    word, pause = 0.8 * vowel / abs(vowel).max() * abs(np.sin(4 * np.pi * time)), np.zeros(RATE)
    samples = np.concatenate([pause, word, word, pause, word, pause])
    return (samples + 0.001 * np.random.default_rng(0).standard_normal(len(samples))).astype(np.float32)
