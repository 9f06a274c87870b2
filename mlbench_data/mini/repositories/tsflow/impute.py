"""Hides single values at random, fills them in and saves the result.

python impute.py --data Exchange --model LightTS --mask_rate 0.1 --save_path=./checkpoints/demo
"""

import argparse
from pathlib import Path

import numpy as np

from tsflow.data import FORECASTING, load_dataset
from tsflow.imputation import METHODS, fill, hide_points
from tsflow.metrics import mae, mse


def share(text: str) -> float:
    """A number between 0 and 1, both excluded."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", required=True, choices=list(FORECASTING))
    parser.add_argument("--model", required=True, choices=METHODS)
    parser.add_argument("--mask_rate", required=True, type=share, help="share of the values that is hidden")
    parser.add_argument("--save_path", required=True, type=Path, help="folder of this experiment")
    parser.add_argument("--top_k", type=int, default=5, help="frequencies kept by TimesNet and Transformer")
    arguments = parser.parse_args()
    series, _ = load_dataset(arguments.data)
    mask = hide_points(series, arguments.mask_rate, seed=2021)
    filled = fill(series, mask, arguments.model, arguments.top_k)
    arguments.save_path.mkdir(parents=True, exist_ok=True)
    np.save(arguments.save_path / "filled.npy", filled)
    print(f"hidden values: {int(mask.sum())} of {mask.size}")
    print(f"mse: {mse(filled[mask], series[mask]):.4f} mae: {mae(filled[mask], series[mask]):.4f}")
    print(f"saved to {arguments.save_path / 'filled.npy'}")


if __name__ == "__main__":
    main()
