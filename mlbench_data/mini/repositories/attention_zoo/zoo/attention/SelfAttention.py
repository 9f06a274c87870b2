"""Multi-head scaled dot-product attention."""

import numpy as np

from zoo.functional import check_input, check_positive, softmax, weight


class ScaledDotProductAttention:
    """Every token looks at every other. `d_model` must be divisible by `h`."""

    def __init__(self, *, d_model: int, d_k: int, d_v: int, h: int):
        check_positive(d_model=d_model, d_k=d_k, d_v=d_v, h=h)
        if d_model % h:
            raise ValueError(f"d_model {d_model} is not divisible by h {h}")
        self.d_model, self.d_k, self.d_v, self.h = d_model, d_k, d_v, h
        self.to_queries = weight(d_model, h * d_k)
        self.to_keys = weight(d_model, h * d_k)
        self.to_values = weight(d_model, h * d_v)
        self.to_output = weight(h * d_v, d_model)

    def __call__(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Shape (batch, queries, d_model)."""
        for tokens in (queries, keys, values):
            check_input(tokens, "batch tokens dim", dim=self.d_model)
        q = self._heads(queries @ self.to_queries, self.d_k)
        k = self._heads(keys @ self.to_keys, self.d_k)
        v = self._heads(values @ self.to_values, self.d_v)
        mixed = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(self.d_k)) @ v
        return mixed.swapaxes(1, 2).reshape(*queries.shape[:2], -1) @ self.to_output

    def _heads(self, tokens: np.ndarray, width: int) -> np.ndarray:
        return tokens.reshape(*tokens.shape[:2], self.h, width).swapaxes(1, 2)
