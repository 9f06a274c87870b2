"""Small pictures are enlarged; a discriminator asks for sharp edges.

python srgan.py --factor 2 --img_size 16
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, between, options, pictures, save, squared, update_critic


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--factor", type=int, choices=(2, 4), default=2, help="how many times larger")
    parser.add_argument(
        "--adv_weight", type=between(0.0, 1.0, float), default=0.01, help="weight against the pixel loss"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    side = args.img_size // args.factor
    blocks = real.reshape(-1, side, args.factor, side, args.factor)
    small = blocks.mean(axis=(2, 4)).reshape(len(real), -1)
    generator = Net([small.shape[1], 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            fake = generator.forward(small[batch])
            error, gradient = squared(real[batch])(fake)
            loss_g, fooled = bce(1.0)(critic.forward(fake))
            generator.backward(gradient + args.adv_weight * critic.backward(fooled))
            critic.forget()
            generator.step()
            loss_d = update_critic(critic, (real[batch], bce(1.0)), (fake, bce(0.0)))
    print(f"{side} x {side} to {args.img_size} x {args.img_size}, pixel error {error:.4f}")
    print(f"srgan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "srgan")


if __name__ == "__main__":
    main()
