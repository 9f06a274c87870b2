"""Pitch by autocorrelation, printed for every utterance of a list.

python scripts/extract_pitch.py --list data/numbers.tsv --low 80 --high 400
"""

import argparse
import csv
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from speechlab import SAMPLE_RATE, utterance


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--list", type=pathlib.Path, required=True, help="table of speakers and words")
    parser.add_argument("--low", type=int, default=80, help="lowest pitch in hertz")
    parser.add_argument("--high", type=int, default=400, help="highest pitch in hertz")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    with open(arguments.list, encoding="utf-8") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    lags = np.arange(SAMPLE_RATE // arguments.high, SAMPLE_RATE // arguments.low)
    for line in lines:
        wave = utterance(line["word"], int(line["speaker"]))
        similar = [wave[lag:] @ wave[:-lag] for lag in lags]
        print(f"{line['speaker']}\t{line['word']}\t{SAMPLE_RATE / lags[np.argmax(similar)]:.1f} Hz")


if __name__ == "__main__":
    main()
