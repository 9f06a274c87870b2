"""A graph attention layer. Attention is recomputed from the projections, but carries no gradient."""

import numpy as np


class AttentionHeads:
    """Several heads whose outputs are averaged into class scores."""

    def __init__(self, features: int, classes: int, heads: int, rng: np.random.Generator) -> None:
        self.projections = [rng.normal(scale=0.2, size=(features, classes)) for _ in range(heads)]
        self.source = rng.normal(size=(heads, classes))
        self.target = rng.normal(size=(heads, classes))

    def attention(self, head: int, projected: np.ndarray, connected: np.ndarray) -> np.ndarray:
        """Weights (n, n) that add up to one over the neighbours of each node."""
        scores = (projected @ self.source[head])[:, None] + (projected @ self.target[head])[None, :]
        scores = np.where(scores > 0, scores, 0.2 * scores)
        scores = np.where(connected, scores, -np.inf)
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        return exponents / exponents.sum(axis=1, keepdims=True)

    def forward(
        self, features: np.ndarray, connected: np.ndarray, drop: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Class scores (n, classes), and each head's smoothed features for the backward pass."""
        smoothed = []
        for head, projection in enumerate(self.projections):
            weights = self.attention(head, features @ projection, connected)
            if drop:
                weights = weights * (rng.random(weights.shape) >= drop) / (1.0 - drop)
            smoothed.append(weights @ features)
        pairs = zip(smoothed, self.projections, strict=True)
        return np.mean([features @ weight for features, weight in pairs], axis=0), smoothed
