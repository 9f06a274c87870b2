"""Synthetic stand-ins for well-known graphs: planted communities with noisy features."""

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Graph:
    """An undirected graph: dense adjacency (n, n), features (n, f), integer labels (n,)."""

    name: str
    adjacency: np.ndarray
    features: np.ndarray
    labels: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def train_mask(self, share: float = 0.5) -> np.ndarray:
        """A fixed boolean mask with about `share` of the nodes."""
        return np.random.default_rng(0).random(self.num_nodes) < share


def synthesize(name: str, nodes: int, classes: int, features: int = 24) -> Graph:
    """The same graph for the same name, whatever the machine."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    labels = np.arange(nodes) % classes
    same_class = labels[:, None] == labels[None, :]
    upper = np.triu(rng.random((nodes, nodes)) < np.where(same_class, 0.2, 0.03), 1)
    centres = rng.normal(size=(classes, features))
    noisy = centres[labels] + rng.normal(size=(nodes, features))
    return Graph(name, (upper | upper.T).astype(float), noisy, labels)
