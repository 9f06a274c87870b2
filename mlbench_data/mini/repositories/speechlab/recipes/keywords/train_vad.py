"""Finds the energy threshold that separates speech from silence.

python train_vad.py --snr-list 5,10 --steps 20
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from speechlab import WORDS, utterance
from speechlab.augment import AddNoise, Chain
from speechlab.features import frames


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--snr-list", default="10", help="signal-to-noise ratios, separated by commas")
    parser.add_argument("--steps", type=int, default=20, help="thresholds to try")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    energies, speech = [], []
    for snr in map(float, arguments.snr_list.split(",")):
        for word in WORDS:
            noisy = Chain([AddNoise("pink", snr)])(np.pad(utterance(word), 1600))
            cut = frames(noisy, 160, 160)
            energies.append(np.log((cut**2).mean(axis=1)))
            middle = np.arange(len(cut)) * 160
            speech.append((middle >= 1600) & (middle < len(noisy) - 1600))
    levels, truth = np.concatenate(energies), np.concatenate(speech)
    thresholds = np.linspace(levels.min(), levels.max(), arguments.steps)
    rates = [np.mean((levels > threshold) == truth) for threshold in thresholds]
    print(f"best threshold {thresholds[np.argmax(rates)]:.2f}, {max(rates):.4f} of the frames right")


if __name__ == "__main__":
    main()
