"""Trains a classifier of shapes on features of PointNet.

python train_pointnet.py --exp_name demo -b 10 -e 1 --symfn avg --emb_dims 32
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointcloud3d.models.pointnet import SYMMETRIC, PointNet
from pointcloud3d.shapes import SHAPES, labelled_shapes


def train_head(features: np.ndarray, labels: np.ndarray, batch_size: int, epochs: int) -> np.ndarray:
    """Weights of a softmax classifier."""
    random = np.random.default_rng(0)
    weights = np.zeros((features.shape[1], len(SHAPES)))
    for epoch in range(1, epochs + 1):
        order = random.permutation(len(features))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            scores = np.exp(features[batch] @ weights)
            error = scores / scores.sum(axis=1, keepdims=True) - np.eye(len(SHAPES))[labels[batch]]
            weights -= 0.5 / len(batch) * features[batch].T @ error
        accuracy = (np.argmax(features @ weights, axis=1) == labels).mean()
        print(f"epoch {epoch} accuracy {accuracy:.3f}")
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--exp_name", required=True, help="folder below checkpoints")
    parser.add_argument("-b", "--batch_size", type=int, required=True)
    parser.add_argument("-e", "--epochs", type=int, required=True)
    parser.add_argument("--symfn", required=True, choices=list(SYMMETRIC), help="pooling over points")
    parser.add_argument("--emb_dims", type=int, required=True, help="size of the feature of a cloud")
    parser.add_argument("--num_points", type=int, default=64)
    arguments = parser.parse_args()
    if min(arguments.batch_size, arguments.epochs, arguments.emb_dims, arguments.num_points) < 1:
        parser.error("sizes must be positive")
    clouds, labels = labelled_shapes(count=12, num_points=arguments.num_points, seed=1)
    features = PointNet(emb_dims=arguments.emb_dims, symfn=arguments.symfn)(clouds)
    weights = train_head(features - features.mean(axis=0), labels, arguments.batch_size, arguments.epochs)
    folder = Path("checkpoints") / arguments.exp_name
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "head.npy", weights)
    print(f"saved {folder / 'head.npy'}")


if __name__ == "__main__":
    main()
