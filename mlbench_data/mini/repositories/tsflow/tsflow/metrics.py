"""Errors of forecasts and scores of detections."""

import numpy as np


def mse(prediction: np.ndarray, target: np.ndarray) -> float:
    """Mean squared error."""
    return float(np.mean((prediction - target) ** 2))


def mae(prediction: np.ndarray, target: np.ndarray) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(prediction - target)))


def f1(found: np.ndarray, truth: np.ndarray) -> float:
    """F1 of two boolean arrays; 0 if nothing was found or nothing is there."""
    hits = int((found & truth).sum())
    total = int(found.sum() + truth.sum())
    return 2 * hits / total if total else 0.0
