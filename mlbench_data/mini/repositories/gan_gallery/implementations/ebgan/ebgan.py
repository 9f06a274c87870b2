"""The discriminator is an autoencoder; its reconstruction error is an energy.

python ebgan.py --margin 1.0
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, between, options, pictures, save, squared


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--margin", type=between(0.01, 10.0, float), default=1.0, help="energy wanted of drawn pictures"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 16, real.shape[1]], rng, args.lr, end="tanh")
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            fake = generator.forward(noise)
            loss_g, gradient = squared(fake)(critic.forward(fake))
            generator.backward(critic.backward(gradient) - gradient)
            critic.forget()
            generator.step()
            energy, gradient = squared(fake)(critic.forward(fake))
            if energy < args.margin:
                critic.backward(-gradient)
            loss_d, gradient = squared(real[batch])(critic.forward(real[batch]))
            critic.backward(gradient)
            critic.step()
    print(f"ebgan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "ebgan")


if __name__ == "__main__":
    main()
