"""Shared weights over patches: a convolution whose stride is its kernel size.

python dcgan.py --channels 16 --img_size 16
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, between, options, pictures, save

PATCH = 4


def to_patches(rows: np.ndarray, side: int) -> np.ndarray:
    """(n, pixels) → (n * side * side, PATCH * PATCH)."""
    blocks = rows.reshape(-1, side, PATCH, side, PATCH).transpose(0, 1, 3, 2, 4)
    return blocks.reshape(-1, PATCH * PATCH)


def from_patches(patches: np.ndarray, side: int) -> np.ndarray:
    """The inverse of `to_patches`."""
    blocks = patches.reshape(-1, side, side, PATCH, PATCH).transpose(0, 1, 3, 2, 4)
    return blocks.reshape(len(blocks), -1)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--channels", type=between(1, 32), default=8, help="features of a patch")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    side = args.img_size // PATCH
    dense = Net([args.latent_dim, side * side * args.channels], rng, args.lr)
    painter = Net([args.channels, PATCH * PATCH], rng, args.lr, end="tanh")
    filters = Net([PATCH * PATCH, args.channels], rng, args.lr, end="tanh")
    critic = Net([side * side * args.channels, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            count = len(batch)
            noise = rng.normal(size=(count, args.latent_dim))
            painted = painter.forward(dense.forward(noise).reshape(-1, args.channels))
            loss_g, gradient = bce(1.0)(critic.forward(filters.forward(painted).reshape(count, -1)))
            back = filters.backward(critic.backward(gradient).reshape(-1, args.channels))
            dense.backward(painter.backward(back).reshape(count, -1))
            for network in (critic, filters):
                network.forget()
            for network in (dense, painter):
                network.step()
            loss_d = 0.0
            for patches, target in ((to_patches(real[batch], side), 1.0), (painted, 0.0)):
                value, gradient = bce(target)(critic.forward(filters.forward(patches).reshape(count, -1)))
                filters.backward(critic.backward(gradient).reshape(-1, args.channels))
                loss_d += value
            for network in (critic, filters):
                network.step()
    print(f"dcgan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(from_patches(painted, side), args.img_size, "dcgan")


if __name__ == "__main__":
    main()
