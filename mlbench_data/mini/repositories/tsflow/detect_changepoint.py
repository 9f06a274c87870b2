"""Finds the steps at which the level of a series changes.

python detect_changepoint.py MSL --penalty 4.0 --min_gap 50
"""

import argparse

import numpy as np

from tsflow.data import ANOMALY, make_series


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("dataset", choices=list(ANOMALY))
    parser.add_argument("--penalty", type=float, required=True, help="how large a change must be")
    parser.add_argument("--min_gap", type=int, default=100, help="steps between two changes")
    arguments = parser.parse_args()
    level = make_series(ANOMALY[arguments.dataset], seed=7).mean(axis=1).cumsum()
    changes: list[int] = []
    for step in np.flatnonzero(np.abs(level - level.mean()) > arguments.penalty):
        if not changes or step - changes[-1] >= arguments.min_gap:
            changes.append(int(step))
    print(f"{arguments.dataset}: {len(changes)} changes at {changes[:10]}")


if __name__ == "__main__":
    main()
