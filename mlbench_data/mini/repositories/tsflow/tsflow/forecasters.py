"""Forecasters with the inputs of the models they are named after, each fitted by ridge regression."""

import numpy as np

from tsflow.metrics import mae, mse

RIDGE = 1.0
MAX_WINDOWS = 128


class Forecaster:
    """Predicts `pred_len` steps from the `seq_len` steps before them, for all variates with one map."""

    def __init__(self, seq_len: int, pred_len: int):
        if seq_len < 2 or pred_len < 1:
            raise ValueError(f"seq_len {seq_len} and pred_len {pred_len}: expected at least 2 and 1")
        self.seq_len = seq_len
        self.pred_len = pred_len
        self.weights: np.ndarray | None = None

    def embed(self, windows: np.ndarray) -> np.ndarray:
        """Features of windows of shape (count, seq_len)."""
        raise NotImplementedError

    def fit(self, inputs: np.ndarray, targets: np.ndarray | None = None) -> "Forecaster":
        """Fits on series of shape (steps, variates). Without targets the inputs are predicted."""
        past, future = self._windows(inputs, inputs if targets is None else targets)
        features = self._design(past)
        gram = features.T @ features + RIDGE * np.eye(features.shape[1])
        self.weights = np.linalg.solve(gram, features.T @ future)
        return self

    def evaluate(self, inputs: np.ndarray, targets: np.ndarray | None = None) -> dict[str, float]:
        """Errors over all windows of a series."""
        if self.weights is None:
            raise RuntimeError("fit the forecaster first")
        past, future = self._windows(inputs, inputs if targets is None else targets)
        prediction = self._design(past) @ self.weights
        return {"mse": round(mse(prediction, future), 4), "mae": round(mae(prediction, future), 4)}

    def _design(self, past: np.ndarray) -> np.ndarray:
        level = past[:, -1:]
        return np.hstack([self.embed(past - level), level, np.ones_like(level)])

    def _windows(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        last = len(inputs) - self.seq_len - self.pred_len
        if last < 0:
            raise ValueError(f"{len(inputs)} steps are too few for seq_len + pred_len")
        starts = np.unique(np.linspace(0, last, MAX_WINDOWS).astype(int))
        past = np.stack([inputs[start : start + self.seq_len] for start in starts])
        ends = starts + self.seq_len
        future = np.stack([targets[end : end + self.pred_len] for end in ends])
        if future.shape[2] < past.shape[2]:
            past = past.mean(axis=2, keepdims=True)
        return _by_variate(past), _by_variate(future)


class DLinear(Forecaster):
    """Trend by a moving average, and what is left of it, each sampled coarsely."""

    def embed(self, windows: np.ndarray) -> np.ndarray:
        kernel = np.ones(5) / 5
        trend = np.stack([np.convolve(row, kernel, mode="same") for row in windows[:, -64:]])
        return np.hstack([trend[:, ::4], (windows[:, -64:] - trend)[:, ::4]])


class PatchTST(Forecaster):
    """Mean and slope of overlapping patches."""

    def __init__(self, seq_len: int, pred_len: int, patch_len: int = 16, stride: int = 8):
        super().__init__(seq_len, pred_len)
        if not 1 <= stride <= patch_len <= seq_len:
            raise ValueError(
                f"stride {stride}, patch_len {patch_len}: expected both in 1 to seq_len, stride the smaller"
            )
        self.patch_len = patch_len
        self.stride = stride

    @property
    def patches(self) -> int:
        """How many patches a window has."""
        return (self.seq_len - self.patch_len) // self.stride + 1

    def embed(self, windows: np.ndarray) -> np.ndarray:
        starts = [index * self.stride for index in range(self.patches)]
        patches = np.stack([windows[:, start : start + self.patch_len] for start in starts], axis=1)
        return np.hstack([patches.mean(axis=2), patches[:, :, -1] - patches[:, :, 0]])


class Autoformer(Forecaster):
    """Strongest lags of the autocorrelation."""

    def embed(self, windows: np.ndarray) -> np.ndarray:
        spectrum = np.fft.rfft(windows, axis=1)
        correlation = np.fft.irfft(np.abs(spectrum) ** 2, axis=1).mean(axis=0)
        lags = np.argsort(correlation)[-24:]
        return windows[:, -1 - np.sort(lags) % windows.shape[1]]


class TimesNet(Forecaster):
    """Lowest frequencies of the spectrum."""

    def embed(self, windows: np.ndarray) -> np.ndarray:
        spectrum = np.fft.rfft(windows, axis=1)[:, :16] / windows.shape[1]
        return np.hstack([spectrum.real, spectrum.imag])


class iTransformer(Forecaster):
    """The window itself as one token, by a fixed random projection."""

    def embed(self, windows: np.ndarray) -> np.ndarray:
        projection = np.random.default_rng(0).normal(size=(windows.shape[1], 32))
        return np.tanh(windows @ projection / np.sqrt(windows.shape[1]))


MODELS = {kind.__name__: kind for kind in (PatchTST, Autoformer, DLinear, TimesNet, iTransformer)}


def _by_variate(windows: np.ndarray) -> np.ndarray:
    return windows.transpose(0, 2, 1).reshape(-1, windows.shape[1])
