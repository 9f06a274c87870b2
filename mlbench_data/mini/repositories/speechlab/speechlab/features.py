"""Frames, spectra, mel filter banks and cepstra."""

import numpy as np

from speechlab.utterances import SAMPLE_RATE

WINDOWS = {"hann": np.hanning, "hamming": np.hamming, "blackman": np.blackman}
KINDS = ("spec", "fbank", "mfcc")
N_FFT = 256


def frames(wave: np.ndarray, length: int, hop: int) -> np.ndarray:
    """Overlapping pieces (n, length) of a waveform; a rest that fills no frame is left out."""
    return np.lib.stride_tricks.sliding_window_view(wave, length)[::hop]


def mel_filters(bands: int) -> np.ndarray:
    """Triangular filters (N_FFT // 2 + 1, bands), equally wide on the mel scale."""
    top = 2595 * np.log10(1 + SAMPLE_RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    frequencies = np.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling))


def extract(wave: np.ndarray, kind: str, bands: int, hop: int) -> np.ndarray:
    """Features (frames, dimensions): power spectrum, log mel energies, or their first 13 cepstra.

    `hop` is in samples. Raises ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    power = np.abs(np.fft.rfft(frames(wave, N_FFT, hop) * np.hanning(N_FFT))) ** 2
    if kind == "spec":
        return power
    energies = np.log(power @ mel_filters(bands) + 1e-8)
    if kind == "fbank":
        return energies
    angles = np.pi / bands * (np.arange(bands)[:, None] + 0.5) * np.arange(13)
    return energies @ np.cos(angles)
