"""Token mixing by a matrix over patches."""

import numpy as np

from zoo.functional import check_input, check_positive, relu, weight


class MlpMixer:
    """Cuts an image into square patches, mixes them `num_blocks` times and gives class scores."""

    def __init__(
        self, *, num_classes: int, num_blocks: int, patch_size: int, tokens_hidden_dim: int, image_size: int
    ):
        check_positive(
            num_classes=num_classes,
            num_blocks=num_blocks,
            patch_size=patch_size,
            tokens_hidden_dim=tokens_hidden_dim,
            image_size=image_size,
        )
        if image_size % patch_size:
            raise ValueError(f"image_size {image_size} is not divisible by patch_size {patch_size}")
        self.image_size, self.patch_size, self.num_blocks = image_size, patch_size, num_blocks
        patches = (image_size // patch_size) ** 2
        self.up, self.down = weight(patches, tokens_hidden_dim), weight(tokens_hidden_dim, patches)
        self.head = weight(3 * patch_size**2, num_classes)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Scores of shape (batch, num_classes) for images of shape (batch, 3, height, width)."""
        size = self.image_size
        check_input(images, "batch channel height width", channel=3, height=size, width=size)
        side = size // self.patch_size
        tokens = images.reshape(len(images), 3, side, self.patch_size, side, self.patch_size)
        tokens = tokens.transpose(0, 2, 4, 1, 3, 5).reshape(len(images), side * side, -1)
        for _ in range(self.num_blocks):
            tokens = tokens + (relu(tokens.swapaxes(1, 2) @ self.up) @ self.down).swapaxes(1, 2)
        return tokens.mean(axis=1) @ self.head
