"""Hiding values of a series and filling them in again."""

import numpy as np

METHODS = ("Transformer", "TimesNet", "DLinear", "LightTS")


def hide_points(series: np.ndarray, rate: float, seed: int) -> np.ndarray:
    """A boolean mask of single hidden values."""
    return np.random.default_rng(seed).random(series.shape) < rate


def hide_blocks(series: np.ndarray, length: int, count: int, seed: int) -> np.ndarray:
    """A boolean mask of `count` hidden blocks of `length` steps in each variate."""
    mask = np.zeros(series.shape, bool)
    random = np.random.default_rng(seed)
    for variate in range(series.shape[1]):
        for start in random.integers(0, len(series) - length, count):
            mask[start : start + length, variate] = True
    return mask


def fill(series: np.ndarray, mask: np.ndarray, method: str, width: int) -> np.ndarray:
    """The series with hidden values replaced. `width` is the number of neighbours or frequencies used."""
    steps = np.arange(len(series))
    filled = series.copy()
    for variate in range(series.shape[1]):
        hidden = mask[:, variate]
        filled[hidden, variate] = np.interp(steps[hidden], steps[~hidden], series[~hidden, variate])
    if method == "DLinear":
        smooth = _moving_average(filled, 5)
    elif method == "TimesNet":
        smooth = _strongest_frequencies(filled, width)
    elif method == "LightTS":
        smooth = (filled + _moving_average(filled, 3)) / 2
    else:
        smooth = (_strongest_frequencies(filled, width) + _moving_average(filled, 3)) / 2
    return np.where(mask, smooth, series)


def _moving_average(values: np.ndarray, size: int) -> np.ndarray:
    kernel = np.ones(size) / size
    return np.stack([np.convolve(column, kernel, mode="same") for column in values.T], axis=1)


def _strongest_frequencies(values: np.ndarray, count: int) -> np.ndarray:
    spectrum = np.fft.rfft(values, axis=0)
    threshold = np.sort(np.abs(spectrum), axis=0)[-min(count, len(spectrum))]
    return np.fft.irfft(np.where(np.abs(spectrum) >= threshold, spectrum, 0), n=len(values), axis=0)
