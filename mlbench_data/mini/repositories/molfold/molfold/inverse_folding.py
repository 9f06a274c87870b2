"""Sequences for a backbone: residues are drawn by how crowded their place is."""

import numpy as np

from molfold.fasta import RESIDUES
from molfold.structure import contact_map

HYDROPHOBIC = set("ACFILMVWY")


def residue_logits(backbone: np.ndarray) -> np.ndarray:
    """Shape (residues, 20): crowded places prefer hydrophobic residues."""
    crowding = contact_map(backbone, atom="CA", cutoff=10.0, min_separation=2).sum(axis=1)
    centred = crowding - crowding.mean()
    preference = np.array([1.0 if residue in HYDROPHOBIC else -1.0 for residue in RESIDUES])
    return centred[:, None] * preference / (1 + np.abs(centred).max())


def log_probabilities(backbone: np.ndarray, temperature: float) -> np.ndarray:
    """Shape (residues, 20)."""
    scaled = residue_logits(backbone) / temperature
    return scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))


def sample_sequences(backbone: np.ndarray, temperature: float, count: int, seed: int) -> list[str]:
    """Sequences of the backbone's length."""
    random = np.random.default_rng(seed)
    probabilities = np.exp(log_probabilities(backbone, temperature))
    return ["".join(random.choice(list(RESIDUES), p=row) for row in probabilities) for _ in range(count)]


def score_sequence(backbone: np.ndarray, sequence: str) -> float:
    """Mean log likelihood of a residue. Raises ValueError if the lengths differ."""
    if len(sequence) != len(backbone):
        raise ValueError(f"sequence has {len(sequence)} residues, the backbone {len(backbone)}")
    scores = log_probabilities(backbone, temperature=1.0)
    return float(np.mean([scores[place, RESIDUES.index(residue)] for place, residue in enumerate(sequence)]))
