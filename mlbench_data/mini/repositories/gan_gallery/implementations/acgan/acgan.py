"""The discriminator also names the shape that it sees.

python acgan.py --aux_weight 0.5
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import SHAPES, Net, batches, bce, between, classes, options, pictures, save


def judge(outputs: np.ndarray, target: float, labels: np.ndarray, weight: float) -> tuple[float, np.ndarray]:
    """Loss and gradient: the first output says how real, the others which shape."""
    real, up = bce(target)(outputs[:, :1])
    shape, right = classes(labels)(outputs[:, 1:])
    return real + weight * shape, np.column_stack([up, weight * right])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--aux_weight", type=between(0.0, 10.0, float), default=1.0, help="weight of the shape's loss"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, labels = pictures(args.img_size)
    generator = Net([args.latent_dim + len(SHAPES), 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1 + len(SHAPES)], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            wanted = np.eye(len(SHAPES))[labels[batch]]
            fake = generator.forward(np.column_stack([noise, wanted]))
            loss_g, gradient = judge(critic.forward(fake), 1.0, labels[batch], args.aux_weight)
            generator.backward(critic.backward(gradient))
            critic.forget()
            generator.step()
            loss_d = 0.0
            for rows, target in ((real[batch], 1.0), (fake, 0.0)):
                value, gradient = judge(critic.forward(rows), target, labels[batch], args.aux_weight)
                critic.backward(gradient)
                loss_d += value
            critic.step()
    print(f"acgan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "acgan")


if __name__ == "__main__":
    main()
