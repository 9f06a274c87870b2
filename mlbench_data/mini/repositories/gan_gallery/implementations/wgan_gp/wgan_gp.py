"""Wasserstein distance by a critic whose slope is pulled towards one.

python wgan_gp.py --n_critic 5 --lambda_gp 10
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import (
    Net,
    average,
    batches,
    between,
    options,
    pictures,
    save,
    slope_penalty,
    update_critic,
    update_generator,
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--n_critic", type=between(1, 10), default=5, help="critic steps for each generator step"
    )
    parser.add_argument(
        "--lambda_gp", type=between(0.1, 100.0, float), default=10.0, help="weight of the penalty"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    steps = 0
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            fake = generator.forward(noise)
            mixed = fake + rng.random((len(batch), 1)) * (real[batch] - fake)
            penalty = slope_penalty(critic, mixed, real[batch] - fake, args.lambda_gp)
            loss_d = penalty + update_critic(critic, (real[batch], average(-1.0)), (fake, average(1.0)))
            if steps % args.n_critic == 0:
                loss_g, fake = update_generator(generator, critic, noise, average(-1.0))
            steps += 1
    print(f"wgan_gp: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "wgan_gp")


if __name__ == "__main__":
    main()
