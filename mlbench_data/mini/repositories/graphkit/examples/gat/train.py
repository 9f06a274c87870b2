"""Transductive node classification with graph attention: one co-purchase graph, some labels hidden.

python train.py --dataset=amazon-photo --num-heads=8
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from attention import AttentionHeads

from graphkit import Adam, synthesize
from graphkit.propagation import accuracy, cross_entropy

SIZES = {"amazon-photo": (100, 8), "amazon-computers": (110, 10)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--dataset", choices=SIZES, required=True, help="co-purchase graph")
    parser.add_argument("--num-heads", type=int, default=4, help="attention heads")
    parser.add_argument("--in-drop", type=float, default=0.0, help="dropout of the input features")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the graph")
    arguments = parser.parse_args()
    if not 1 <= arguments.num_heads <= 16:
        parser.error("--num-heads must be between 1 and 16")
    if not 0.0 <= arguments.in_drop < 1.0:
        parser.error("--in-drop must be at least 0 and below 1")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    nodes, classes = SIZES[arguments.dataset]
    graph = synthesize(arguments.dataset, nodes, classes)
    connected = graph.adjacency + np.eye(nodes) > 0
    mask = graph.train_mask()
    rng = np.random.default_rng(2)
    model = AttentionHeads(graph.features.shape[1], classes, arguments.num_heads, rng)
    optimizer = Adam(model.projections, lr=0.02)
    for _ in range(arguments.epochs):
        kept = rng.random(graph.features.shape) >= arguments.in_drop
        scores, smoothed = model.forward(graph.features * kept, connected, 0.0, rng)
        loss, gradient = cross_entropy(scores, graph.labels, mask)
        optimizer.step([features.T @ gradient / arguments.num_heads for features in smoothed])
    print(f"{graph.name}: loss {loss:.4f}, test accuracy {accuracy(scores, graph.labels, ~mask):.4f}")


if __name__ == "__main__":
    main()
