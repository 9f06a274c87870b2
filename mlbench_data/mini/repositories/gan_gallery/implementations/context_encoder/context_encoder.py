"""A missing part of a picture is painted from what surrounds it.

python context_encoder.py --mask_shape Square --mask_size 4
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, bce, between, options, pictures, save, squared, update_critic


def block(size: int, height: int) -> np.ndarray:
    mask = np.zeros((size, size), dtype=bool)
    start = (size - height) // 2
    mask[start : start + height, start : start + height] = True
    return mask


def stripe(size: int, height: int) -> np.ndarray:
    start = (size - height) // 2
    return np.repeat((np.arange(size) >= start) & (np.arange(size) < start + height), size).reshape(
        size, size
    )


def corner(size: int, height: int) -> np.ndarray:
    return (np.add.outer(np.arange(size), np.arange(size)) < height).astype(bool)


MASKS = {"Square": block, "Stripe": stripe, "Corner": corner}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--mask_shape", choices=MASKS, default="Square", help="what is missing")
    parser.add_argument(
        "--mask_size", type=int, choices=(2, 3, 4, 5, 6), default=4, help="height of the missing part"
    )
    parser.add_argument(
        "--adv_weight", type=between(0.0, 1.0, float), default=0.01, help="weight against reconstruction"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    missing = MASKS[args.mask_shape](args.img_size, args.mask_size).ravel()
    generator = Net([real.shape[1], 64, missing.sum()], rng, args.lr, end="tanh")
    critic = Net([missing.sum(), 32, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            hidden = real[batch][:, missing]
            fake = generator.forward(np.where(missing, 0.0, real[batch]))
            error, gradient = squared(hidden)(fake)
            loss_g, fooled = bce(1.0)(critic.forward(fake))
            through = (1.0 - args.adv_weight) * gradient + args.adv_weight * critic.backward(fooled)
            generator.backward(through)
            critic.forget()
            generator.step()
            loss_d = update_critic(critic, (hidden, bce(1.0)), (fake, bce(0.0)))
    painted = real.copy()
    painted[:, missing] = generator.forward(np.where(missing, 0.0, real))
    print(f"{missing.sum()} missing pixels, error {error:.4f}")
    print(f"context_encoder: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(painted, args.img_size, "context_encoder")


if __name__ == "__main__":
    main()
