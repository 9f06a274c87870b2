"""Convolutional block attention: channels first, then places."""

import numpy as np

from zoo.functional import check_input, check_positive, relu, sigmoid, weight


class CBAMBlock:
    """A channel gate with `reduction`, then a spatial gate with a square kernel of odd `kernel_size`."""

    def __init__(self, *, channel: int, reduction: int, kernel_size: int):
        check_positive(channel=channel, reduction=reduction, kernel_size=kernel_size)
        if channel % reduction:
            raise ValueError(f"channel {channel} is not divisible by reduction {reduction}")
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is {kernel_size}; expected an odd number")
        self.channel = channel
        self.squeeze = weight(channel, channel // reduction)
        self.excite = weight(channel // reduction, channel)
        self.kernel = weight(2 * kernel_size, kernel_size).reshape(2, kernel_size, kernel_size)

    def __call__(self, maps: np.ndarray) -> np.ndarray:
        """Shape of the input, (batch, channel, height, width); the input is added to the result."""
        check_input(maps, "batch channel height width", channel=self.channel)
        gated = maps * self._channel_gate(maps)[:, :, None, None]
        return gated * self._spatial_gate(gated)[:, None] + maps

    def _channel_gate(self, maps: np.ndarray) -> np.ndarray:
        pooled = (maps.max(axis=(2, 3)), maps.mean(axis=(2, 3)))
        return sigmoid(sum(relu(values @ self.squeeze) @ self.excite for values in pooled))

    def _spatial_gate(self, maps: np.ndarray) -> np.ndarray:
        margin = self.kernel.shape[1] // 2
        pooled = np.stack([maps.max(axis=1), maps.mean(axis=1)], axis=1)
        padded = np.pad(pooled, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.kernel.shape[1:], axis=(2, 3))
        return sigmoid(np.einsum("bchwij,cij->bhw", windows, self.kernel))
