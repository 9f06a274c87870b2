"""An autoencoder whose code is made to look like noise by a discriminator.

python aae.py --latent_dim 8
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, between, options, pictures, save, squared, update_critic


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--adv_weight", type=between(0.0, 1.0, float), default=0.1, help="weight against reconstruction"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    encoder = Net([real.shape[1], 64, args.latent_dim], rng, args.lr)
    decoder = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([args.latent_dim, 32, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            codes = encoder.forward(real[batch])
            error, gradient = squared(real[batch])(decoder.forward(codes))
            loss_g, fooled = bce(1.0)(critic.forward(codes))
            through = (1.0 - args.adv_weight) * decoder.backward(gradient)
            encoder.backward(through + args.adv_weight * critic.backward(fooled))
            critic.forget()
            for network in (encoder, decoder):
                network.step()
            loss_d = update_critic(critic, (noise, bce(1.0)), (codes, bce(0.0)))
    print(f"reconstruction {error:.4f}")
    print(f"aae: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(decoder.forward(noise), args.img_size, "aae")


if __name__ == "__main__":
    main()
