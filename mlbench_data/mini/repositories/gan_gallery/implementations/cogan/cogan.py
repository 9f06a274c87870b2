"""Two generators with a common beginning draw two domains, without any pairs.

python cogan.py --second day2night
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import PAIRS, Net, batches, bce, options, picture_pairs, save, update_critic


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--second", choices=PAIRS, default="positive2negative", help="how the second domain is made"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    domains = picture_pairs(args.second, args.img_size)
    real = domains[0]
    common = Net([args.latent_dim, 64], rng, args.lr, end="tanh")
    painters = [Net([64, real.shape[1]], rng, args.lr, end="tanh") for _ in domains]
    critics = [Net([real.shape[1], 64, 1], rng, args.lr) for _ in domains]
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            features = common.forward(noise)
            loss_g = loss_d = 0.0
            back = np.zeros_like(features)
            for pictures, painter, critic in zip(domains, painters, critics):
                fake = painter.forward(features)
                value, gradient = bce(1.0)(critic.forward(fake))
                back += painter.backward(critic.backward(gradient))
                critic.forget()
                painter.step()
                loss_g += value
                shown = pictures[rng.integers(len(pictures), size=len(batch))]
                loss_d += update_critic(critic, (shown, bce(1.0)), (fake, bce(0.0)))
            common.backward(back)
            common.step()
    print(f"cogan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "cogan")


if __name__ == "__main__":
    main()
