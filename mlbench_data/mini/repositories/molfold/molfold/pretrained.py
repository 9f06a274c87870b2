"""Embedding models of three sizes. Their weights are drawn from a seed, not learned."""

from dataclasses import dataclass

import numpy as np

from molfold.fasta import RESIDUES

POOLINGS = ("mean", "max", "none")


@dataclass(frozen=True)
class Size:
    """How deep and how wide a model is."""

    layers: int
    width: int


SIZES = {
    "mf_t6_8M": Size(layers=6, width=32),
    "mf_t12_35M": Size(layers=12, width=48),
    "mf_t30_150M": Size(layers=30, width=64),
}


class EmbeddingModel:
    """Mixes each residue with its neighbours, layer by layer."""

    def __init__(self, name: str, size: Size):
        random = np.random.default_rng(size.layers)
        self.name = name
        self.layers = size.layers
        self.tokens = random.normal(size=(len(RESIDUES) + 1, size.width))
        self.weights = random.normal(size=(size.layers, size.width, size.width)) / np.sqrt(size.width)

    def represent(self, sequence: str, layer: int) -> np.ndarray:
        """Start token and residues after a layer, shape (1 + residues, width). Layer 0 is the input."""
        if not 0 <= layer <= self.layers:
            raise ValueError(f"layer is {layer}; {self.name} has layers 0 to {self.layers}")
        hidden = self.tokens[[len(RESIDUES), *(RESIDUES.index(residue) for residue in sequence)]]
        for weights in self.weights[:layer]:
            padded = np.pad(hidden, ((1, 1), (0, 0)))
            hidden = hidden + np.tanh((padded[:-2] + hidden + padded[2:]) @ weights / 3)
        return hidden

    def embed(self, sequence: str, *, layer: int, pooling: str) -> np.ndarray:
        """One vector for the sequence, or one for each residue with pooling `none`."""
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}")
        residues = self.represent(sequence, layer)[1:]
        if pooling == "none":
            return residues
        return residues.mean(axis=0) if pooling == "mean" else residues.max(axis=0)


def load_model(name: str) -> EmbeddingModel:
    """The named model. Raises KeyError that lists the names."""
    if name not in SIZES:
        raise KeyError(f"unknown model {name!r}; known: {', '.join(SIZES)}")
    return EmbeddingModel(name, SIZES[name])
