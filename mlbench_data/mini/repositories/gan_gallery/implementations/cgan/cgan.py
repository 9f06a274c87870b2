"""Generator and discriminator are told which shape is wanted.

python cgan.py --n_classes 5
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, between, options, pictures, save, update_critic


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--n_classes", type=between(5, 20), default=5, help="width of the one-hot label")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, labels = pictures(args.img_size)
    generator = Net([args.latent_dim + args.n_classes, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1] + args.n_classes, 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            wanted = np.eye(args.n_classes)[labels[batch]]
            fake = generator.forward(np.column_stack([noise, wanted]))
            loss_g, gradient = bce(1.0)(critic.forward(np.column_stack([fake, wanted])))
            generator.backward(critic.backward(gradient)[:, : fake.shape[1]])
            critic.forget()
            generator.step()
            parts = [(rows, loss) for rows, loss in ((real[batch], bce(1.0)), (fake, bce(0.0)))]
            loss_d = update_critic(critic, *((np.column_stack([rows, wanted]), loss) for rows, loss in parts))
    print(f"cgan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "cgan")


if __name__ == "__main__":
    main()
