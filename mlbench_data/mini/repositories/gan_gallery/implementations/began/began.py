"""Autoencoder errors of real and drawn pictures are kept in balance.

python began.py --gamma 0.5
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, absolute, batches, between, options, pictures, save


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--gamma", type=between(0.1, 1.0, float), default=0.75, help="wanted ratio of the two errors"
    )
    parser.add_argument(
        "--lambda_k", type=between(0.0001, 0.1, float), default=0.001, help="speed of the balance"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 16, real.shape[1]], rng, args.lr, end="tanh")
    balance = 0.0
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            fake = generator.forward(noise)
            loss_g, gradient = absolute(fake)(critic.forward(fake))
            generator.backward(critic.backward(gradient) - gradient)
            critic.forget()
            generator.step()
            error, gradient = absolute(fake)(critic.forward(fake))
            critic.backward(-balance * gradient)
            loss_d, gradient = absolute(real[batch])(critic.forward(real[batch]))
            critic.backward(gradient)
            critic.step()
            balance = float(np.clip(balance + args.lambda_k * (args.gamma * loss_d - error), 0.0, 1.0))
    print(f"began: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "began")


if __name__ == "__main__":
    main()
