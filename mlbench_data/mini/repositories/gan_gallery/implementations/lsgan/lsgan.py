"""Least squares instead of cross-entropy as the discriminator's loss.

python lsgan.py --n_epochs 20
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, options, pictures, save, squared, update_critic, update_generator


def main() -> None:
    parser = options(__doc__)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            loss_g, fake = update_generator(generator, critic, noise, squared(1.0))
            loss_d = 0.5 * update_critic(critic, (real[batch], squared(1.0)), (fake, squared(0.0)))
    print(f"lsgan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "lsgan")


if __name__ == "__main__":
    main()
