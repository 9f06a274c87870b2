"""Registers noisy, rotated clouds with saved weights and prints the error in degrees.

python test_registration.py RPMNet --pretrained=checkpoints/demo/best_model.npz -n 100 --max_angle 15
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointcloud3d.ops.registration import METHODS, angle_between, register, rotation_about_z
from pointcloud3d.shapes import SHAPES, make_shape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("method", choices=list(METHODS))
    parser.add_argument("--pretrained", type=Path, required=True, help="best_model.npz of an experiment")
    parser.add_argument("-n", "--num_points", type=int, required=True)
    parser.add_argument("--max_angle", type=float, required=True, help="largest rotation in degrees")
    arguments = parser.parse_args()
    if not arguments.pretrained.is_file():
        parser.error(f"{arguments.pretrained} does not exist; run make_weights.py first")
    strength = float(np.load(arguments.pretrained)["strength"])
    random = np.random.default_rng(5)
    errors = []
    for seed, shape in enumerate(SHAPES):
        source = make_shape(shape, num_points=arguments.num_points, seed=seed)
        truth = rotation_about_z(random.uniform(0, arguments.max_angle))
        template = source @ truth.T + random.normal(0, 0.02, source.shape)
        errors.append(angle_between(register(source, template, arguments.method, strength), truth))
    print(f"{arguments.method}: mean error {np.mean(errors):.3f} degrees over {len(errors)} shapes")


if __name__ == "__main__":
    main()
