"""The original game: the discriminator tells real from drawn, the generator tries to mislead it.

python gan.py --n_epochs 20
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, options, pictures, save, update_critic, update_generator


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
            loss_g, fake = update_generator(generator, critic, noise, bce(1.0))
            loss_d = update_critic(critic, (real[batch], bce(1.0)), (fake, bce(0.0)))
    print(f"gan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "gan")


if __name__ == "__main__":
    main()
