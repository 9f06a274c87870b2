"""Node classification on a citation graph with a two-layer graph convolutional network.

python train.py --dataset cora --n-hidden 16
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from graphkit import Adam, normalize, synthesize
from graphkit.propagation import NORMS, accuracy, cross_entropy

SIZES = {"cora": (140, 7), "citeseer": (120, 6), "pubmed": (150, 3)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--dataset", choices=SIZES, required=True, help="citation graph")
    parser.add_argument("--n-hidden", type=int, default=16, help="units of the hidden layer")
    parser.add_argument("--norm", choices=NORMS, default="both", help="how the adjacency is normalised")
    parser.add_argument("--n-epochs", type=int, default=40, help="passes over the graph")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of Adam")
    parser.add_argument("--no-self-loop", action="store_true", help="leave out the self loops")
    arguments = parser.parse_args()
    if not 4 <= arguments.n_hidden <= 512:
        parser.error("--n-hidden must be between 4 and 512")
    if not 1 <= arguments.n_epochs <= 500:
        parser.error("--n-epochs must be between 1 and 500")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    nodes, classes = SIZES[arguments.dataset]
    graph = synthesize(arguments.dataset, nodes, classes)
    matrix = normalize(graph.adjacency, arguments.norm, not arguments.no_self_loop)
    mask = graph.train_mask()
    rng = np.random.default_rng(1)
    first = rng.normal(scale=0.2, size=(graph.features.shape[1], arguments.n_hidden))
    second = rng.normal(scale=0.2, size=(arguments.n_hidden, graph.num_classes))
    optimizer = Adam([first, second], arguments.lr)
    smoothed = matrix @ graph.features
    for _ in range(arguments.n_epochs):
        hidden = np.maximum(smoothed @ first, 0.0)
        scores = matrix @ (hidden @ second)
        loss, gradient = cross_entropy(scores, graph.labels, mask)
        back = matrix.T @ gradient
        through = (back @ second.T) * (hidden > 0)
        optimizer.step([smoothed.T @ through, hidden.T @ back])
    print(f"{graph.name}: {arguments.n_epochs} epochs, loss {loss:.4f}")
    print(f"test accuracy {accuracy(scores, graph.labels, ~mask):.4f}")


if __name__ == "__main__":
    main()
