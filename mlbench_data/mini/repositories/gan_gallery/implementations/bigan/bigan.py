"""An encoder learns the way back from picture to noise; the discriminator sees both.

python bigan.py --latent_dim 8
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, options, pictures, save, update_critic


def main() -> None:
    parser = options(__doc__)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    encoder = Net([real.shape[1], 64, args.latent_dim], rng, args.lr)
    critic = Net([real.shape[1] + args.latent_dim, 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            fake, codes = generator.forward(noise), encoder.forward(real[batch])
            drawn, encoded = np.column_stack([fake, noise]), np.column_stack([real[batch], codes])
            loss_g, gradient = bce(1.0)(critic.forward(drawn))
            generator.backward(critic.backward(gradient)[:, : real.shape[1]])
            loss_e, gradient = bce(0.0)(critic.forward(encoded))
            encoder.backward(critic.backward(gradient)[:, real.shape[1] :])
            critic.forget()
            for network in (generator, encoder):
                network.step()
            loss_d = update_critic(critic, (encoded, bce(1.0)), (drawn, bce(0.0)))
    print(f"encoder {loss_e:.4f}")
    print(f"bigan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "bigan")


if __name__ == "__main__":
    main()
