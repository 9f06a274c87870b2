"""Completes half clouds and prints the mean distance to the whole ones.

python test_completion.py torus -n 128
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointcloud3d.models.pcn import PCN
from pointcloud3d.shapes import SHAPES, make_shape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("-n", "--num_points", type=int, required=True)
    arguments = parser.parse_args()
    cloud = make_shape(arguments.shape, num_points=arguments.num_points)
    half = cloud[cloud[:, 0] > 0]
    fine = PCN(emb_dims=64, num_coarse=64, grid_size=2)(half[None])["fine"][0]
    distance = np.linalg.norm(cloud[:, None] - fine[None], axis=-1).min(axis=1).mean()
    print(f"{arguments.shape}: {len(half)} of {len(cloud)} points given, mean distance {distance:.4f}")


if __name__ == "__main__":
    main()
