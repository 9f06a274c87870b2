"""Attention to a small memory that all samples share."""

import numpy as np

from zoo.functional import check_input, check_positive, softmax, weight


class ExternalAttention:
    """Two linear layers over `S` memory slots; cost is linear in the number of tokens."""

    def __init__(self, *, d_model: int, S: int):
        check_positive(d_model=d_model, S=S)
        self.d_model = d_model
        self.keys = weight(d_model, S)
        self.values = weight(S, d_model)

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """Shape of the input, (batch, tokens, d_model)."""
        check_input(tokens, "batch tokens dim", dim=self.d_model)
        attention = softmax(tokens @ self.keys, axis=1)
        attention = attention / attention.sum(axis=2, keepdims=True)
        return attention @ self.values
