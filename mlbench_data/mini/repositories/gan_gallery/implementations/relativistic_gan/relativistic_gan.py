"""The discriminator judges whether a real picture looks more real than a drawn one.

python relativistic_gan.py --rel_avg
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, options, pictures, save


def relative(real: np.ndarray, fake: np.ndarray, sign: float, averaged: bool) -> tuple[float, np.ndarray]:
    """Loss of "real above fake" for sign 1, "fake above real" for -1, and its gradient for both parts."""
    if not averaged:
        value, gradient = bce(1.0)(sign * (real - fake))
        return value, sign * np.concatenate([gradient, -gradient])
    above, up = bce(1.0)(sign * (real - fake.mean()))
    below, down = bce(0.0)(sign * (fake - real.mean()))
    gradients = [up - down.sum() / len(real), down - up.sum() / len(fake)]
    return (above + below) / 2, sign * np.concatenate(gradients) / 2


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rel_avg", action="store_true", help="compare with the average of the other side")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            fake = generator.forward(noise)
            count = len(batch)
            for network, sign in ((generator, -1.0), (critic, 1.0)):
                scores = critic.forward(np.concatenate([real[batch], fake]))
                value, gradient = relative(scores[:count], scores[count:], sign, args.rel_avg)
                inputs = critic.backward(gradient)
                if network is generator:
                    critic.forget()
                    generator.backward(inputs[count:])
                    loss_g = value
                network.step()
            loss_d = value
    print(f"relativistic_gan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "relativistic_gan")


if __name__ == "__main__":
    main()
