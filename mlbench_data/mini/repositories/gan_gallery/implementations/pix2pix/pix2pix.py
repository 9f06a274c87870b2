"""Paired translation: draw the partner of a given picture.

python pix2pix.py photo2sketch -d AtoB -e 10 -b 8
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import PAIRS, Net, absolute, batches, bce, between, picture_pairs, save, update_critic

SIZE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("dataset", choices=PAIRS, help="pairs of pictures")
    parser.add_argument("-d", dest="direction", choices=("AtoB", "BtoA"), required=True, help="which way")
    parser.add_argument("-e", dest="epochs", type=between(1, 200), default=10, help="passes over the pairs")
    parser.add_argument("-b", dest="batch", type=between(2, 64), default=16, help="pairs in an update")
    parser.add_argument(
        "--lambda_pixel", type=between(0.0, 1000.0, float), default=100.0, help="weight of the L1 loss"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    given, wanted = picture_pairs(args.dataset, SIZE)
    if args.direction == "BtoA":
        given, wanted = wanted, given
    generator = Net([SIZE * SIZE, 64, SIZE * SIZE], rng, 0.002, end="tanh")
    critic = Net([2 * SIZE * SIZE, 64, 1], rng, 0.002)
    for _ in range(args.epochs):
        for batch in batches(len(given), args.batch, rng):
            fake = generator.forward(given[batch])
            error, gradient = absolute(wanted[batch])(fake)
            loss_g, fooled = bce(1.0)(critic.forward(np.column_stack([given[batch], fake])))
            through = critic.backward(fooled)[:, SIZE * SIZE :]
            generator.backward(through + args.lambda_pixel * gradient)
            critic.forget()
            generator.step()
            pairs = [np.column_stack([given[batch], other]) for other in (wanted[batch], fake)]
            loss_d = update_critic(critic, (pairs[0], bce(1.0)), (pairs[1], bce(0.0)))
    print(f"{args.dataset} {args.direction}: L1 error {error:.4f}")
    print(f"pix2pix: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, SIZE, "pix2pix")


if __name__ == "__main__":
    main()
