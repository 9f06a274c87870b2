"""Minibatch neighbour sampling: how large do the sampled blocks become?

python neighbor_sampler.py reddit -b 32 -f 10,5
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from graphkit import Graph, normalize, synthesize

SIZES = {"reddit": (200, 5), "products": (220, 6), "papers100M": (240, 8), "yelp": (180, 4)}


def hops(text: str) -> list[int]:
    """`10,5` is [10, 5]."""
    numbers = [int(part) for part in text.split(",")]
    if not 1 <= len(numbers) <= 4 or min(numbers) < 1:
        raise ValueError(text)
    return numbers


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("graph", choices=SIZES, help="graph to sample from")
    parser.add_argument("-b", dest="batch", type=int, required=True, help="seed nodes in a batch")
    parser.add_argument("-f", dest="fanout", type=hops, required=True, help="neighbours per hop, A,B,...")
    parser.add_argument("-p", dest="probability", choices=("uniform", "degree", "pagerank"),
                        default="uniform", help="which neighbours are preferred")  # fmt: skip
    arguments = parser.parse_args()
    if not 8 <= arguments.batch <= 128:
        parser.error("-b must be between 8 and 128")
    return arguments


def importance(graph: Graph, probability: str) -> np.ndarray:
    """One positive weight for each node."""
    if probability == "uniform":
        return np.ones(graph.num_nodes)
    if probability == "degree":
        return graph.adjacency.sum(axis=0) + 1.0
    walk = normalize(graph.adjacency, "right").T
    rank = np.full(graph.num_nodes, 1.0 / graph.num_nodes)
    for _ in range(20):
        rank = 0.85 * walk @ rank + 0.15 / graph.num_nodes
    return rank


def main() -> None:
    arguments = parse_arguments()
    graph = synthesize(arguments.graph, *SIZES[arguments.graph])
    weights = importance(graph, arguments.probability)
    rng = np.random.default_rng(5)
    frontier = rng.choice(graph.num_nodes, size=arguments.batch, replace=False)
    for hop, fanout in enumerate(arguments.fanout, start=1):
        sampled = set()
        for node in frontier:
            neighbours = np.flatnonzero(graph.adjacency[node])
            if len(neighbours) > fanout:
                shares = weights[neighbours] / weights[neighbours].sum()
                neighbours = rng.choice(neighbours, size=fanout, replace=False, p=shares)
            sampled.update(neighbours.tolist())
        frontier = np.array(sorted(sampled))
        print(f"hop {hop}: {len(frontier)} distinct nodes (at most {fanout} neighbours each)")


if __name__ == "__main__":
    main()
