"""Bottleneck attention: a channel gate and a dilated spatial gate, added."""

import numpy as np

from zoo.functional import check_input, check_positive, relu, sigmoid, weight


class BAMBlock:
    """`dia_val` is the distance between the taps of the spatial gate."""

    def __init__(self, *, channel: int, reduction: int, dia_val: int):
        check_positive(channel=channel, reduction=reduction, dia_val=dia_val)
        if channel % reduction:
            raise ValueError(f"channel {channel} is not divisible by reduction {reduction}")
        self.channel, self.dia_val = channel, dia_val
        self.squeeze = weight(channel, channel // reduction)
        self.excite = weight(channel // reduction, channel)

    def __call__(self, maps: np.ndarray) -> np.ndarray:
        """Shape of the input, (batch, channel, height, width)."""
        check_input(maps, "batch channel height width", channel=self.channel)
        channels = relu(maps.mean(axis=(2, 3)) @ self.squeeze) @ self.excite
        places = maps.mean(axis=1)
        for axis in (1, 2):
            places = (places + np.roll(places, self.dia_val, axis) + np.roll(places, -self.dia_val, axis)) / 3
        return maps * (1 + sigmoid(channels[:, :, None, None] + places[:, None]))
