"""The original loss with a slope penalty around noisy copies of the real pictures.

python dragan.py --lambda_gp 5 --noise_std 0.3
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import (
    Net,
    batches,
    bce,
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
        "--lambda_gp", type=between(0.1, 100.0, float), default=10.0, help="weight of the penalty"
    )
    parser.add_argument(
        "--noise_std", type=between(0.01, 2.0, float), default=0.5, help="size of the perturbation"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            loss_g, fake = update_generator(generator, critic, noise, bce(1.0))
            direction = args.noise_std * rng.normal(size=real[batch].shape)
            penalty = slope_penalty(critic, real[batch] + direction, direction, args.lambda_gp)
            loss_d = penalty + update_critic(critic, (real[batch], bce(1.0)), (fake, bce(0.0)))
    print(f"dragan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "dragan")


if __name__ == "__main__":
    main()
