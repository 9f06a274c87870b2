"""Writes the weights of a registration experiment, so that it can be tested without training.

python make_weights.py demo
"""

import argparse
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("experiment", help="folder below checkpoints")
    folder = Path("checkpoints") / parser.parse_args().experiment
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "best_model.npz", strength=0.8)
    print(f"wrote {folder / 'best_model.npz'}")


if __name__ == "__main__":
    main()
