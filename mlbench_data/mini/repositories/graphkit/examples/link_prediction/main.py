"""Link prediction: smooth the features over the graph, then score pairs of nodes.

python main.py ddi --predictor Hadamard --save-to=./checkpoints/ddi_first
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from graphkit import Adam, normalize, synthesize

SIZES = {"collab": (110, 6), "ddi": (80, 4), "ppa": (120, 5), "citation2": (100, 8)}
PREDICTORS = {
    "DotProduct": lambda left, right: (left * right).sum(axis=1, keepdims=True),
    "Hadamard": lambda left, right: left * right,
    "Bilinear": lambda left, right: np.einsum("ni,nj->nij", left, right).reshape(len(left), -1),
    "Distance": lambda left, right: np.abs(left - right),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("dataset", choices=SIZES, help="graph whose edges are predicted")
    parser.add_argument("--predictor", choices=PREDICTORS, required=True, help="how a pair is scored")
    parser.add_argument("--negatives", type=int, default=1, help="sampled non-edges for each edge")
    parser.add_argument("--save-to", type=pathlib.Path, required=True, help="folder of the run")
    arguments = parser.parse_args()
    if not 1 <= arguments.negatives <= 16:
        parser.error("--negatives must be between 1 and 16")
    if not arguments.save_to.parent.is_dir():
        parser.error(f"--save-to: {arguments.save_to.parent} does not exist")
    return arguments


def sample_pairs(adjacency: np.ndarray, negatives: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(left, right, is an edge), with `negatives` random non-edges for each edge."""
    rng = np.random.default_rng(4)
    edges = np.argwhere(np.triu(adjacency) > 0)
    others = np.argwhere(np.triu(1.0 - adjacency, 1) > 0)
    chosen = others[rng.integers(len(others), size=negatives * len(edges))]
    pairs = np.concatenate([edges, chosen])
    return pairs[:, 0], pairs[:, 1], np.repeat([1.0, 0.0], [len(edges), len(chosen)])


def main() -> None:
    arguments = parse_arguments()
    nodes, classes = SIZES[arguments.dataset]
    graph = synthesize(arguments.dataset, nodes, classes, features=12)
    matrix = normalize(graph.adjacency, "both")
    embeddings = matrix @ (matrix @ graph.features)
    left, right, targets = sample_pairs(graph.adjacency, arguments.negatives)
    inputs = PREDICTORS[arguments.predictor](embeddings[left], embeddings[right])
    weights, bias = np.zeros(inputs.shape[1]), np.zeros(1)
    optimizer = Adam([weights, bias], lr=0.05)
    for _ in range(20):
        shares = 1.0 / (1.0 + np.exp(-np.clip(inputs @ weights + bias, -30, 30)))
        error = (shares - targets) / len(targets)
        optimizer.step([inputs.T @ error, error.sum(keepdims=True)])
    margin = shares[targets == 1].mean() - shares[targets == 0].mean()
    arguments.save_to.mkdir(exist_ok=True)
    np.savez(arguments.save_to / "predictor.npz", weights=weights, bias=bias)
    print(f"{arguments.dataset}: {len(targets)} pairs, margin between edges and non-edges {margin:.4f}")
    print(f"saved {arguments.save_to / 'predictor.npz'}")


if __name__ == "__main__":
    main()
