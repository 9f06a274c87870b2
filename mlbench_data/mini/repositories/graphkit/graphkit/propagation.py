"""Normalised adjacency matrices and the losses on top of them."""

import numpy as np

NORMS = ("both", "right", "none")


def normalize(adjacency: np.ndarray, norm: str, self_loops: bool = True) -> np.ndarray:
    """D^-1/2 A D^-1/2 for `both`, D^-1 A for `right`, A itself for `none`."""
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {NORMS}, got {norm!r}")
    matrix = adjacency + np.eye(len(adjacency)) if self_loops else adjacency
    degree = np.maximum(matrix.sum(axis=1), 1.0)
    if norm == "both":
        return matrix / np.sqrt(degree[:, None] * degree[None, :])
    return matrix / degree[:, None] if norm == "right" else matrix / matrix.sum(axis=1).max()


def softmax(scores: np.ndarray) -> np.ndarray:
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def cross_entropy(scores: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean loss over the masked nodes, and its gradient for every node."""
    shares = softmax(scores)
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels][mask] + 1e-12).mean()
    gradient = shares.copy()
    gradient[rows, labels] -= 1.0
    gradient[~mask] = 0.0
    return float(loss), gradient / mask.sum()


def accuracy(scores: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> float:
    return float((scores.argmax(axis=1) == labels)[mask].mean())
