"""Fits the decoder of the completion network to partial clouds.

python train_pcn.py --exp_name demo -b 4 -e 2 --num_coarse 64
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointcloud3d.models.pcn import PCN
from pointcloud3d.shapes import labelled_shapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--exp_name", required=True, help="folder below checkpoints")
    parser.add_argument("-b", "--batch_size", type=int, required=True)
    parser.add_argument("-e", "--epochs", type=int, required=True)
    parser.add_argument("--num_coarse", type=int, required=True, help="points of the coarse cloud")
    arguments = parser.parse_args()
    model = PCN(emb_dims=64, num_coarse=arguments.num_coarse, grid_size=2)
    clouds, _ = labelled_shapes(count=4, num_points=arguments.num_coarse, seed=1)
    for epoch in range(1, arguments.epochs + 1):
        losses = []
        for start in range(0, len(clouds), arguments.batch_size):
            batch = clouds[start : start + arguments.batch_size]
            feature = model.encoder(batch[:, batch[:, :, 2].mean(axis=0) > -0.5])
            error = feature @ model.decoder - batch.reshape(len(batch), -1)
            model.decoder -= 0.1 / len(batch) * feature.T @ error / feature.shape[1]
            losses.append(float((error**2).mean()))
        print(f"epoch {epoch} loss {np.mean(losses):.4f}")
    folder = Path("checkpoints") / arguments.exp_name
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "decoder.npy", model.decoder)


if __name__ == "__main__":
    main()
