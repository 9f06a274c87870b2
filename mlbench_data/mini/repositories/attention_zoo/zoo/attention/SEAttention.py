"""Squeeze and excitation: one gate for each channel."""

import numpy as np

from zoo.functional import check_input, check_positive, relu, sigmoid, weight

GATES = {
    "sigmoid": sigmoid,
    "hsigmoid": lambda values: np.clip(values / 6 + 0.5, 0, 1),
    "tanh": np.tanh,
}
POOLS = {"avg": np.mean, "max": np.max}


class SEAttention:
    """Pools over space, squeezes by `reduction`, and scales the channels by a gate."""

    def __init__(self, *, channel: int, reduction: int, pool: str = "avg", gate: str = "sigmoid"):
        check_positive(channel=channel, reduction=reduction)
        if channel % reduction:
            raise ValueError(f"channel {channel} is not divisible by reduction {reduction}")
        if pool not in POOLS:
            raise ValueError(f"pool is {pool!r}; expected one of {', '.join(POOLS)}")
        if gate not in GATES:
            raise ValueError(f"gate is {gate!r}; expected one of {', '.join(GATES)}")
        self.channel = channel
        self.pool, self.gate = POOLS[pool], GATES[gate]
        self.squeeze = weight(channel, channel // reduction)
        self.excite = weight(channel // reduction, channel)

    def __call__(self, maps: np.ndarray) -> np.ndarray:
        """Shape of the input, (batch, channel, height, width)."""
        check_input(maps, "batch channel height width", channel=self.channel)
        pooled = self.pool(maps, axis=(2, 3))
        scale = self.gate(relu(pooled @ self.squeeze) @ self.excite)
        return maps * scale[:, :, None, None]
