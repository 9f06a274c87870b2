"""Unpaired translation in both directions: there and back again must change nothing.

python cyclegan.py --dataset_name day2night --lambda_cyc 10
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import PAIRS, Net, absolute, batches, between, picture_pairs, save, squared, update_critic

SIZE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--dataset_name", choices=PAIRS, required=True, help="two domains, FIRST2SECOND")
    parser.add_argument("--n_epochs", type=between(1, 200), default=10, help="passes over the pictures")
    parser.add_argument(
        "--lambda_cyc", type=between(0.0, 100.0, float), default=10.0, help="weight of the cycle loss"
    )
    parser.add_argument(
        "--lambda_id", type=between(0.0, 100.0, float), default=5.0, help="weight of the identity loss"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    domains = picture_pairs(args.dataset_name, SIZE)
    there, back = (Net([SIZE * SIZE, 64, SIZE * SIZE], rng, 0.002, end="tanh") for _ in range(2))
    critics = [Net([SIZE * SIZE, 64, 1], rng, 0.002) for _ in domains]
    for _ in range(args.n_epochs):
        for batch in batches(len(domains[0]), 16, rng):
            loss_g = loss_d = cycle = 0.0
            for way, (first, second) in enumerate(((there, back), (back, there))):
                start = domains[way][batch]
                other = domains[1 - way][rng.integers(len(start), size=len(batch))]
                same, gradient = absolute(other)(first.forward(other))
                first.backward(args.lambda_id * gradient)
                fake = first.forward(start)
                value, gradient = squared(1.0)(critics[1 - way].forward(fake))
                through = critics[1 - way].backward(gradient)
                critics[1 - way].forget()
                error, gradient = absolute(start)(second.forward(fake))
                through += second.backward(args.lambda_cyc * gradient)
                first.backward(through)
                loss_g += value + args.lambda_id * same
                cycle += error
                loss_d += update_critic(critics[1 - way], (other, squared(1.0)), (fake, squared(0.0)))
            for network in (there, back):
                network.step()
    print(f"{args.dataset_name}: cycle error {cycle:.4f}")
    print(f"cyclegan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(there.forward(domains[0]), SIZE, "cyclegan")


if __name__ == "__main__":
    main()
