"""Changes to waveforms that make training data more varied."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

COLORS = {"white": 0.0, "pink": 0.5, "brown": 1.0}
Step = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class AddNoise:
    """Coloured noise, `snr_db` decibels below the signal."""

    color: str
    snr_db: float

    def __post_init__(self) -> None:
        if self.color not in COLORS:
            raise ValueError(f"color must be one of {', '.join(COLORS)}, got {self.color!r}")

    def __call__(self, wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        spectrum = np.fft.rfft(rng.normal(size=len(wave)))
        noise = np.fft.irfft(spectrum / (1.0 + np.arange(len(spectrum))) ** COLORS[self.color], len(wave))
        scale = np.sqrt(np.mean(wave**2) / np.mean(noise**2)) * 10 ** (-self.snr_db / 20)
        return wave + scale * noise


@dataclass(frozen=True)
class Speed:
    """Plays faster (above 1) or slower; pitch changes with it."""

    rate: float

    def __post_init__(self) -> None:
        if not 0.5 <= self.rate <= 2.0:
            raise ValueError(f"rate must be between 0.5 and 2, got {self.rate}")

    def __call__(self, wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        places = np.arange(0, len(wave) - 1, self.rate)
        return np.interp(places, np.arange(len(wave)), wave)


@dataclass(frozen=True)
class Gain:
    """Louder (above 0) or quieter, in decibels."""

    db: float

    def __post_init__(self) -> None:
        if not -30 <= self.db <= 30:
            raise ValueError(f"db must be between -30 and 30, got {self.db}")

    def __call__(self, wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return wave * 10 ** (self.db / 20)


class Chain:
    """Applies steps one after the other; the same seed gives the same result."""

    def __init__(self, steps: list[Step], seed: int = 0) -> None:
        self.steps, self.seed = steps, seed

    def __call__(self, wave: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        for step in self.steps:
            wave = step(wave, rng)
        return wave
