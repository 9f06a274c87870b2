"""Random walks with restart, one line of node numbers for each walk.

python random_walk.py --graph reddit --walk-length 8
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from graphkit import synthesize


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--graph", choices=("reddit", "yelp"), required=True)
    parser.add_argument("--walk-length", type=int, default=8, help="steps of a walk")
    parser.add_argument("--num-walks", type=int, default=4, help="walks to print")
    parser.add_argument("--restart", type=float, default=0.1, help="chance to go back to the start")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    graph = synthesize(arguments.graph, 200, 5)
    rng = np.random.default_rng(6)
    for start in rng.integers(graph.num_nodes, size=arguments.num_walks):
        walk = [int(start)]
        for _ in range(arguments.walk_length):
            neighbours = np.flatnonzero(graph.adjacency[walk[-1]])
            home = len(neighbours) == 0 or rng.random() < arguments.restart
            walk.append(int(start if home else rng.choice(neighbours)))
        print(" ".join(map(str, walk)))


if __name__ == "__main__":
    main()
