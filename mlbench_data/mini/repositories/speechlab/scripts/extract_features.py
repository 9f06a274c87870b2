"""Features for every utterance of a list, one .npy file for each.

python scripts/extract_features.py data/numbers.tsv -t fbank -n 32
"""

import argparse
import csv
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from speechlab import SAMPLE_RATE, utterance
from speechlab.features import KINDS, extract


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("list", type=pathlib.Path, help="table with the columns speaker and word")
    parser.add_argument("-t", dest="kind", choices=KINDS, required=True, help="type of the features")
    parser.add_argument("-n", dest="bands", type=int, default=24, help="mel bands")
    parser.add_argument("--shift", type=float, default=10.0, help="milliseconds from frame to frame")
    parser.add_argument("--out", type=pathlib.Path, default="features", help="folder for the files")
    arguments = parser.parse_args()
    if not arguments.list.is_file():
        parser.error(f"no such list: {arguments.list}")
    if not 13 <= arguments.bands <= 80:
        parser.error("-n must be between 13 and 80")
    if not 1.0 <= arguments.shift <= 32.0:
        parser.error("--shift must be between 1 and 32 milliseconds")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(exist_ok=True)
    with open(arguments.list, encoding="utf-8") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    hop = round(arguments.shift * SAMPLE_RATE / 1000)
    for line in lines:
        wave = utterance(line["word"], int(line["speaker"]))
        features = extract(wave, arguments.kind, arguments.bands, hop)
        np.save(arguments.out / f"{line['word']}-{line['speaker']}.npy", features)
    frames, dimensions = features.shape
    print(f"{len(lines)} utterances, {arguments.kind}: {frames} frames of {dimensions} numbers each")


if __name__ == "__main__":
    main()
