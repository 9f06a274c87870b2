"""Inductive node classification with graph attention: train on some graphs, test on unseen ones.

python train_inductive.py --collection=PPI --num-heads=6
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from attention import AttentionHeads

from graphkit import Adam, Graph, synthesize
from graphkit.propagation import accuracy, cross_entropy

CLASSES = {"PPI": 5, "ENZYMES": 3, "PROTEINS": 4, "MUTAG": 2}
NODES = 40


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--collection", choices=CLASSES, required=True, help="collection of graphs")
    parser.add_argument("--num-heads", type=int, default=4, help="attention heads")
    parser.add_argument("--attn-drop", type=float, default=0.0, help="dropout of the attention weights")
    parser.add_argument("--weight-decay", type=float, default=0.0, help="L2 penalty")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training graphs")
    arguments = parser.parse_args()
    if not 1 <= arguments.num_heads <= 16:
        parser.error("--num-heads must be between 1 and 16")
    if not 0.0 <= arguments.attn_drop < 1.0:
        parser.error("--attn-drop must be at least 0 and below 1")
    if not 0.0 <= arguments.weight_decay <= 0.01:
        parser.error("--weight-decay must be between 0 and 0.01")
    return arguments


def graphs_of(collection: str) -> list[Graph]:
    """Graphs that share the labels' meaning: the features of a class are drawn around one centre."""
    whole = synthesize(collection, 4 * NODES, CLASSES[collection])
    parts = [slice(start, start + NODES) for start in range(0, 4 * NODES, NODES)]
    return [Graph(collection, whole.adjacency[part, part], whole.features[part], whole.labels[part])
            for part in parts]  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    *training, unseen = graphs_of(arguments.collection)
    rng = np.random.default_rng(3)
    model = AttentionHeads(24, CLASSES[arguments.collection], arguments.num_heads, rng)
    optimizer = Adam(model.projections, 0.02, arguments.weight_decay)
    everything = np.ones(NODES, dtype=bool)
    for _ in range(arguments.epochs):
        for graph in training:
            connected = graph.adjacency + np.eye(NODES) > 0
            scores, smoothed = model.forward(graph.features, connected, arguments.attn_drop, rng)
            loss, gradient = cross_entropy(scores, graph.labels, everything)
            optimizer.step([features.T @ gradient / arguments.num_heads for features in smoothed])
    scores, _ = model.forward(unseen.features, unseen.adjacency + np.eye(NODES) > 0, 0.0, rng)
    print(f"{arguments.collection}: loss {loss:.4f} on {len(training)} graphs")
    print(f"accuracy on the unseen graph {accuracy(scores, unseen.labels, everything):.4f}")


if __name__ == "__main__":
    main()
