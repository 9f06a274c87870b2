"""Marks the steps of a series that differ most from their neighbourhood.

python detect_anomaly.py SWaT -w 60 -r 5.0 --score mahalanobis
"""

import argparse

import numpy as np

from tsflow.data import ANOMALY, inject_anomalies, make_series
from tsflow.metrics import f1

SCORES = ("residual", "density", "mahalanobis")


def score_steps(series: np.ndarray, window: int, score: str) -> np.ndarray:
    """How unusual each step is against the moving average over `window` steps."""
    kernel = np.ones(window) / window
    smooth = np.stack([np.convolve(column, kernel, mode="same") for column in series.T], axis=1)
    residual = series - smooth
    if score == "residual":
        return np.abs(residual).mean(axis=1)
    if score == "density":
        return (residual**2 / (residual**2).mean(axis=0)).max(axis=1)
    precision = np.linalg.inv(np.cov(residual.T))
    return np.einsum("ti,ij,tj->t", residual, precision, residual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("dataset", choices=list(ANOMALY))
    parser.add_argument("-w", "--win_size", type=int, required=True, help="steps in a window")
    parser.add_argument("-r", "--anomaly_ratio", type=float, required=True, help="per cent of steps to mark")
    parser.add_argument("--score", required=True, choices=SCORES)
    arguments = parser.parse_args()
    clean = make_series(ANOMALY[arguments.dataset], seed=7)
    if not 2 <= arguments.win_size < len(clean):
        parser.error(f"win_size is {arguments.win_size}; expected 2 to {len(clean) - 1}")
    if not 0 < arguments.anomaly_ratio < 100:
        parser.error(f"anomaly_ratio is {arguments.anomaly_ratio}; expected per cent between 0 and 100")
    series, labels = inject_anomalies(clean, share=0.02, seed=11)
    scores = score_steps(series, arguments.win_size, arguments.score)
    found = scores > np.percentile(scores, 100 - arguments.anomaly_ratio)
    print(f"{arguments.dataset}: marked {int(found.sum())} of {len(series)} steps")
    print(f"F1: {f1(found, labels):.4f}")


if __name__ == "__main__":
    main()
