"""Choosing a few points of a cloud."""

import numpy as np

METHODS = ("FPS", "RND", "IDS")
NEIGHBOURS = 8


class Sampler:
    """Keeps `num_samples` points: farthest point (FPS), random (RND) or inverse density (IDS)."""

    def __init__(self, *, method: str, num_samples: int, seed: int = 0):
        if method not in METHODS:
            raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
        self.method, self.num_samples = method, num_samples
        self.random = np.random.default_rng(seed)

    def __call__(self, cloud: np.ndarray) -> np.ndarray:
        """Shape (num_samples, 3)."""
        if not 1 <= self.num_samples <= len(cloud):
            raise ValueError(f"num_samples is {self.num_samples}; the cloud has {len(cloud)} points")
        if self.method == "FPS":
            return cloud[self._farthest(cloud)]
        if self.method == "RND":
            return cloud[self.random.choice(len(cloud), self.num_samples, replace=False)]
        return cloud[np.argsort(self._loneliness(cloud))[-self.num_samples :]]

    @staticmethod
    def _loneliness(cloud: np.ndarray) -> np.ndarray:
        squares = (cloud**2).sum(axis=1)
        distances = squares[:, None] + squares - 2 * cloud @ cloud.T
        nearest = min(NEIGHBOURS, len(cloud) - 1)
        return np.partition(distances, nearest, axis=1)[:, : nearest + 1].sum(axis=1)

    def _farthest(self, cloud: np.ndarray) -> list[int]:
        chosen = [0]
        distances = np.linalg.norm(cloud - cloud[0], axis=1)
        while len(chosen) < self.num_samples:
            chosen.append(int(distances.argmax()))
            distances = np.minimum(distances, np.linalg.norm(cloud - cloud[chosen[-1]], axis=1))
        return chosen


class VoxelSampler:
    """Keeps the mean of the points in each cell of a grid."""

    def __init__(self, *, voxel_size: float):
        if voxel_size <= 0:
            raise ValueError(f"voxel_size is {voxel_size}; expected a positive number")
        self.voxel_size = voxel_size

    def __call__(self, cloud: np.ndarray) -> np.ndarray:
        """Shape (occupied cells, 3)."""
        cells = np.floor(cloud / self.voxel_size).astype(int)
        _, owner = np.unique(cells, axis=0, return_inverse=True)
        owner = owner.ravel()
        sums = np.stack([np.bincount(owner, weights=cloud[:, axis]) for axis in range(3)], axis=1)
        return sums / np.bincount(owner)[:, None]
