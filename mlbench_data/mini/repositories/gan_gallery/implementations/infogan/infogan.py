"""Some of the noise is a code that a third network must be able to read from the picture.

python infogan.py --code_dim 6 --lambda_info 0.5
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, between, classes, options, pictures, save, update_critic


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--code_dim", type=between(2, 20), default=5, help="values of the categorical code")
    parser.add_argument(
        "--lambda_info", type=between(0.0, 10.0, float), default=1.0, help="weight of the code's loss"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim + args.code_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    reader = Net([real.shape[1], 32, args.code_dim], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            codes = rng.integers(args.code_dim, size=len(batch))
            fake = generator.forward(np.column_stack([noise, np.eye(args.code_dim)[codes]]))
            loss_g, gradient = bce(1.0)(critic.forward(fake))
            unread, wrong = classes(codes)(reader.forward(fake))
            generator.backward(critic.backward(gradient) + reader.backward(args.lambda_info * wrong))
            critic.forget()
            for network in (generator, reader):
                network.step()
            loss_d = update_critic(critic, (real[batch], bce(1.0)), (fake, bce(0.0)))
    print(f"code loss {unread:.4f}")
    print(f"infogan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "infogan")


if __name__ == "__main__":
    main()
