"""A shared random layer for every point, and one symmetric function over all points."""

import numpy as np

SYMMETRIC = {"max": np.max, "avg": np.mean}


class PointNet:
    """Features of clouds; `symfn` is `max` or `avg`."""

    def __init__(self, *, emb_dims: int, symfn: str):
        if symfn not in SYMMETRIC:
            raise ValueError(f"symfn is {symfn!r}; expected one of {', '.join(SYMMETRIC)}")
        if not isinstance(emb_dims, int) or emb_dims < 1:
            raise ValueError(f"emb_dims is {emb_dims!r}; expected a positive int")
        random = np.random.default_rng(emb_dims)
        self.weights = random.normal(size=(3, emb_dims))
        self.offsets = random.uniform(-1, 1, emb_dims)
        self.pool = SYMMETRIC[symfn]

    def __call__(self, clouds: np.ndarray) -> np.ndarray:
        """Shape (batch, emb_dims) for clouds of shape (batch, points, 3)."""
        if clouds.ndim != 3 or clouds.shape[2] != 3:
            raise ValueError(f"clouds have shape {clouds.shape}; expected (batch, points, 3)")
        return self.pool(np.tanh(clouds @ self.weights + self.offsets), axis=1)
