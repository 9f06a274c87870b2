"""The trainable part: a softmax layer on frozen vectors."""

import numpy as np


class SoftmaxHead:
    """Linear scores and their cross-entropy, trained by gradient descent."""

    def __init__(self, width: int, classes: int) -> None:
        self.weight = np.zeros((width, classes))

    def shares(self, vectors: np.ndarray) -> np.ndarray:
        scores = vectors @ self.weight
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        return exponents / exponents.sum(axis=1, keepdims=True)

    def step(self, vectors: np.ndarray, labels: np.ndarray, learning_rate: float) -> float:
        """One update; the loss before it."""
        shares = self.shares(vectors)
        rows = np.arange(len(labels))
        loss = -np.log(shares[rows, labels] + 1e-12).mean()
        shares[rows, labels] -= 1.0
        self.weight -= learning_rate * vectors.T @ shares / len(labels)
        return float(loss)
