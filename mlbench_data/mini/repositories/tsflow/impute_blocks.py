"""Hides whole blocks of steps, as sensor failures do, and fills them in.

python impute_blocks.py --data ETTh1 --model DLinear --block_len 12 --n_blocks 8
"""

import argparse

from tsflow.data import FORECASTING, load_dataset
from tsflow.imputation import METHODS, fill, hide_blocks
from tsflow.metrics import mae, mse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", required=True, choices=list(FORECASTING))
    parser.add_argument("--model", required=True, choices=METHODS)
    parser.add_argument("--block_len", required=True, type=int, help="steps in a block")
    parser.add_argument("--n_blocks", type=int, default=4, help="blocks in each variate")
    arguments = parser.parse_args()
    series, _ = load_dataset(arguments.data)
    mask = hide_blocks(series, arguments.block_len, arguments.n_blocks, seed=2021)
    filled = fill(series, mask, arguments.model, width=5)
    print(f"mse: {mse(filled[mask], series[mask]):.4f} mae: {mae(filled[mask], series[mask]):.4f}")


if __name__ == "__main__":
    main()
