"""From magnitudes back to waveforms."""

import numpy as np

from speechlab.features import WINDOWS, frames


class GriffinLim:
    """Finds phases that agree with given magnitudes (Griffin and Lim 1984)."""

    def __init__(self, n_fft: int, hop: int, window: str, iterations: int) -> None:
        if window not in WINDOWS:
            raise ValueError(f"window must be one of {', '.join(WINDOWS)}, got {window!r}")
        if n_fft % hop or n_fft < 2 * hop:
            raise ValueError(f"hop must divide n_fft at least twice, got {hop} and {n_fft}")
        if not 1 <= iterations <= 100:
            raise ValueError(f"iterations must be between 1 and 100, got {iterations}")
        self.n_fft, self.hop, self.iterations = n_fft, hop, iterations
        self.window = WINDOWS[window](n_fft)

    def spectrum(self, wave: np.ndarray) -> np.ndarray:
        return np.fft.rfft(frames(wave, self.n_fft, self.hop) * self.window)

    def magnitude(self, wave: np.ndarray) -> np.ndarray:
        """(frames, n_fft // 2 + 1) magnitudes."""
        return np.abs(self.spectrum(wave))

    def overlap_add(self, spectrum: np.ndarray) -> np.ndarray:
        pieces = np.fft.irfft(spectrum, self.n_fft) * self.window
        wave = np.zeros((len(pieces) - 1) * self.hop + self.n_fft)
        weight = np.full_like(wave, 1e-8)
        for number, piece in enumerate(pieces):
            place = slice(number * self.hop, number * self.hop + self.n_fft)
            wave[place] += piece
            weight[place] += self.window**2
        return wave / weight

    def invert(self, magnitude: np.ndarray) -> np.ndarray:
        """A waveform whose magnitudes come near the given ones. Raises ValueError for another n_fft's."""
        if magnitude.shape[1] != self.n_fft // 2 + 1:
            raise ValueError(f"expected {self.n_fft // 2 + 1} bins, got {magnitude.shape[1]}")
        phase = np.exp(2j * np.pi * np.random.default_rng(0).random(magnitude.shape))
        for _ in range(self.iterations):
            rebuilt = self.spectrum(self.overlap_add(magnitude * phase))
            phase = rebuilt / (np.abs(rebuilt) + 1e-12)
        return self.overlap_add(magnitude * phase)


def overtone_synthesis(pitch: float, overtones: int, seconds: float = 0.2) -> np.ndarray:
    """A vowel-like sound made of overtones of `pitch` in hertz; no magnitudes are needed."""
    time = np.arange(int(8000 * seconds)) / 8000
    return sum(np.sin(2 * np.pi * pitch * number * time) / number for number in range(1, overtones + 1))
