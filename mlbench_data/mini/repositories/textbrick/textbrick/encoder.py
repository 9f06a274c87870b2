"""A transformer encoder with random weights: shapes and data flow are real, knowledge is not."""

import json
import pathlib
from dataclasses import dataclass

import numpy as np

POOLINGS = ("first", "mean", "max")


@dataclass(frozen=True)
class BrickConfig:
    """The encoder's shape. Raises ValueError if the heads do not divide the hidden size."""

    hidden_size: int
    num_layers: int
    num_heads: int
    lower_case: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.num_layers <= 24:
            raise ValueError(f"num_layers must be between 1 and 24, got {self.num_layers}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} cannot be divided by {self.num_heads} heads")

    @classmethod
    def from_folder(cls, folder: pathlib.Path) -> "BrickConfig":
        return cls(**json.loads((folder / "config.json").read_text()))


class BrickModel:
    """Encodes text or piece numbers into vectors."""

    def __init__(self, config: BrickConfig, vocab_size: int = 256, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        width = config.hidden_size
        self.config, self.vocab_size = config, vocab_size
        self.embedding = rng.normal(size=(vocab_size, width))
        self.position = rng.normal(scale=0.3, size=(512, width))
        self.layers = [
            {
                name: rng.normal(scale=width**-0.5, size=(width, width))
                for name in ("q", "k", "v", "out", "mlp")
            }
            for _ in range(config.num_layers)
        ]

    def forward(self, numbers: np.ndarray) -> np.ndarray:
        """(batch, length) piece numbers → (batch, length, hidden_size) vectors."""
        states = self.embedding[numbers] + self.position[: numbers.shape[1]]
        for layer in self.layers:
            states = normalize(states + self._attend(states, layer))
            states = normalize(states + np.maximum(states @ layer["mlp"], 0.0))
        return states

    def _attend(self, states: np.ndarray, layer: dict[str, np.ndarray]) -> np.ndarray:
        batch, length, width = states.shape
        split = (batch, length, self.config.num_heads, width // self.config.num_heads)
        query, key, value = (
            (states @ layer[name]).reshape(split).transpose(0, 2, 1, 3) for name in ("q", "k", "v")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(split[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ value).transpose(0, 2, 1, 3).reshape(states.shape) @ layer["out"]

    def encode(self, text: str, pooling: str) -> np.ndarray:
        """One vector (hidden_size,) for a text, whose bytes are the pieces. Raises ValueError."""
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")
        states = self.forward(np.frombuffer(text.encode(), dtype=np.uint8)[None, :].astype(int))[0]
        if pooling == "first":
            return states[0]
        return states.mean(axis=0) if pooling == "mean" else states.max(axis=0)


def normalize(states: np.ndarray) -> np.ndarray:
    centred = states - states.mean(axis=-1, keepdims=True)
    return centred / (centred.std(axis=-1, keepdims=True) + 1e-6)
