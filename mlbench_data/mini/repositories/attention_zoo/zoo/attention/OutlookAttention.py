"""Outlook attention: each place weighs its neighbours by its own features, without queries and keys."""

import numpy as np

from zoo.functional import check_input, check_positive, softmax, weight


class OutlookAttention:
    """Channels come last. `dim` must be divisible by `num_heads`, `kernel_size` is odd."""

    def __init__(self, *, dim: int, num_heads: int, kernel_size: int):
        check_positive(dim=dim, num_heads=num_heads, kernel_size=kernel_size)
        if dim % num_heads:
            raise ValueError(f"dim {dim} is not divisible by num_heads {num_heads}")
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is {kernel_size}; expected an odd number")
        self.dim, self.num_heads, self.kernel_size = dim, num_heads, kernel_size
        self.to_values = weight(dim, dim)
        self.to_weights = weight(dim, num_heads * kernel_size**2)
        self.to_output = weight(dim, dim)

    def __call__(self, maps: np.ndarray) -> np.ndarray:
        """Shape of the input, (batch, height, width, dim)."""
        check_input(maps, "batch height width dim", dim=self.dim)
        places, margin = maps.shape[:3], self.kernel_size // 2
        values = np.pad(maps @ self.to_values, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(values, (self.kernel_size,) * 2, axis=(1, 2))
        windows = windows.reshape(*places, self.num_heads, -1, self.kernel_size**2)
        attention = softmax((maps @ self.to_weights).reshape(*places, self.num_heads, self.kernel_size**2))
        mixed = np.einsum("bxyhdk,bxyhk->bxyhd", windows, attention)
        return mixed.reshape(*places, self.dim) @ self.to_output
