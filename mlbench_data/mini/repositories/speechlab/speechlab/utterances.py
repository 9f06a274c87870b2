"""Synthetic words: two gliding formants under an envelope, the same for the same word and speaker."""

import zlib

import numpy as np

SAMPLE_RATE = 8000
WORDS = ("yes", "no", "up", "down", "left", "right", "go", "stop", "one", "two", "three")


def utterance(word: str, speaker: int = 0, seconds: float = 0.4) -> np.ndarray:
    """A waveform from -1 to 1 at 8 kHz. Raises ValueError for a word that is not in WORDS."""
    if word not in WORDS:
        raise ValueError(f"unknown word {word!r}; known are {', '.join(WORDS)}")
    shape = np.random.default_rng(zlib.crc32(word.encode()))
    voice = np.random.default_rng([speaker, zlib.crc32(word.encode())])
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    wave = np.zeros_like(time)
    for low, high in ((200, 900), (1000, 3000)):
        start, end = shape.uniform(low, high, size=2) * voice.normal(1.0, 0.04, size=2)
        wave += np.sin(2 * np.pi * (start * time + (end - start) * time**2 / (2 * seconds)))
    wave = wave * np.hanning(len(time)) + 0.02 * voice.normal(size=len(time))
    return wave / np.abs(wave).max()
