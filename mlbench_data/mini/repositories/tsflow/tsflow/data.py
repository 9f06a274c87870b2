"""Series made in memory: each data set has its own number of variates, period and noise."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Recipe:
    """How one series is made. `period` is in steps."""

    variates: int
    period: int
    noise: float
    steps: int = 2400


FORECASTING = {
    "ETTh1": Recipe(variates=7, period=24, noise=0.20),
    "ETTh2": Recipe(variates=7, period=24, noise=0.35),
    "ETTm1": Recipe(variates=7, period=96, noise=0.15),
    "ETTm2": Recipe(variates=7, period=96, noise=0.25),
    "Exchange": Recipe(variates=8, period=7, noise=0.40),
    "Weather": Recipe(variates=12, period=144, noise=0.10),
}

ANOMALY = {
    "SMD": Recipe(variates=12, period=60, noise=0.10),
    "MSL": Recipe(variates=10, period=50, noise=0.15),
    "SMAP": Recipe(variates=8, period=40, noise=0.20),
    "SWaT": Recipe(variates=14, period=120, noise=0.10),
    "PSM": Recipe(variates=9, period=75, noise=0.25),
}


def make_series(recipe: Recipe, seed: int) -> np.ndarray:
    """Standardised values of shape (steps, variates); the last variate is the target."""
    random = np.random.default_rng(seed)
    time = np.arange(recipe.steps)[:, None]
    phase = random.uniform(0, 2 * np.pi, recipe.variates)
    slope = random.normal(0, 2e-4, recipe.variates)
    values = np.sin(2 * np.pi * time / recipe.period + phase) + slope * time
    values = values + random.normal(0, recipe.noise, values.shape)
    return (values - values.mean(0)) / values.std(0)


def load_dataset(name: str, train_ratio: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """The named forecasting series, cut in time into a training part and a test part."""
    if name not in FORECASTING:
        raise KeyError(f"unknown data set {name!r}; known: {', '.join(FORECASTING)}")
    if not 0.1 <= train_ratio <= 0.9:
        raise ValueError(f"train_ratio is {train_ratio}; expected 0.1 to 0.9")
    series = make_series(FORECASTING[name], seed=len(name) + list(FORECASTING).index(name))
    cut = int(train_ratio * len(series))
    return series[:cut], series[cut:]


def select_features(series: np.ndarray, features: str) -> tuple[np.ndarray, np.ndarray]:
    """Input and target variates of a setting: M, S or MS."""
    inputs = series[:, -1:] if features == "S" else series
    targets = series if features == "M" else series[:, -1:]
    return inputs, targets


def inject_anomalies(series: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A copy with spikes, and a boolean label for each step."""
    random = np.random.default_rng(seed)
    labels = random.random(len(series)) < share
    spikes = random.normal(0, 4, series.shape) * labels[:, None]
    return series + spikes, labels
