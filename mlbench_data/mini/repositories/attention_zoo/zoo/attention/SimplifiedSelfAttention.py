"""Multi-head attention that projects queries only by splitting them into heads."""

import numpy as np

from zoo.functional import check_input, check_positive, softmax, weight


class SimplifiedScaledDotProductAttention:
    """The widths of keys and values follow from `d_model` and `h`."""

    def __init__(self, *, d_model: int, h: int):
        check_positive(d_model=d_model, h=h)
        if d_model % h:
            raise ValueError(f"d_model {d_model} is not divisible by h {h}")
        self.d_model, self.h = d_model, h
        self.to_output = weight(d_model, d_model)

    def __call__(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Shape (batch, queries, d_model)."""
        for tokens in (queries, keys, values):
            check_input(tokens, "batch tokens dim", dim=self.d_model)
        q, k, v = (self._heads(tokens) for tokens in (queries, keys, values))
        mixed = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(self.d_model // self.h)) @ v
        return mixed.swapaxes(1, 2).reshape(queries.shape) @ self.to_output

    def _heads(self, tokens: np.ndarray) -> np.ndarray:
        return tokens.reshape(*tokens.shape[:2], self.h, -1).swapaxes(1, 2)
