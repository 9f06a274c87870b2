"""Trains a keyword spotter and tests it on speakers that it has not heard.

python train.py --keywords up,down --model Logistic --exp=exp/first
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from speechlab import WORDS, utterance
from speechlab.augment import AddNoise, Chain
from speechlab.features import extract

MODELS = ("Prototype", "Logistic", "Perceptron")


def word_list(text: str) -> list[str]:
    """`up,down` is [up, down]; two words at least, all of them known."""
    words = text.split(",")
    if len(words) < 2 or len(set(words)) < len(words) or not set(words) <= set(WORDS):
        raise argparse.ArgumentTypeError(f"expected two or more of {','.join(WORDS)}, got {text!r}")
    return words


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--keywords", type=word_list, required=True, help="words, separated by commas")
    parser.add_argument("--model", choices=MODELS, required=True, help="kind of classifier")
    parser.add_argument("--snr", type=float, default=20.0, help="signal-to-noise ratio in decibels")
    parser.add_argument("--exp", type=pathlib.Path, required=True, help="folder of the experiment")
    arguments = parser.parse_args()
    if not 0.0 <= arguments.snr <= 60.0:
        parser.error("--snr must be between 0 and 60 decibels")
    return arguments


def examples(words: list[str], speakers: range, snr: float) -> tuple[np.ndarray, np.ndarray]:
    """Log mel energies in four parts of each noisy utterance, averaged over time; and the words' numbers."""
    rows, labels = [], []
    for label, word in enumerate(words):
        for speaker in speakers:
            noisy = Chain([AddNoise("white", snr)], seed=speaker)(utterance(word, speaker))
            energies = extract(noisy, "fbank", bands=20, hop=128)
            rows.append(np.concatenate([part.mean(axis=0) for part in np.array_split(energies, 4)]))
            labels.append(label)
    return np.array(rows), np.array(labels)


def fit(model: str, rows: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Weights that turn rows into scores."""
    hidden = np.eye(rows.shape[1])
    if model == "Perceptron":
        hidden = np.random.default_rng(0).normal(scale=0.1, size=(rows.shape[1], 64))
    inputs = activate(rows @ hidden, model)
    wanted = np.eye(labels.max() + 1)[labels]
    if model == "Prototype":
        centres = wanted.T @ inputs / wanted.sum(axis=0)[:, None]
        return {"hidden": hidden, "output": centres.T, "bias": -0.5 * (centres**2).sum(axis=1)}
    output, bias = np.zeros((inputs.shape[1], wanted.shape[1])), np.zeros(wanted.shape[1])
    for _ in range(60):
        scores = inputs @ output + bias
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = shares / shares.sum(axis=1, keepdims=True) - wanted
        output -= 0.1 * inputs.T @ error / len(rows)
        bias -= 0.1 * error.mean(axis=0)
    return {"hidden": hidden, "output": output, "bias": bias}


def activate(states: np.ndarray, model: str) -> np.ndarray:
    return np.tanh(states) if model == "Perceptron" else states


def main() -> None:
    arguments = parse_arguments()
    rows, labels = examples(arguments.keywords, range(8), arguments.snr)
    centre, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    weights = fit(arguments.model, (rows - centre) / spread, labels)
    rows, labels = examples(arguments.keywords, range(8, 12), arguments.snr)
    inputs = activate((rows - centre) / spread @ weights["hidden"], arguments.model)
    predicted = (inputs @ weights["output"] + weights["bias"]).argmax(axis=1)
    arguments.exp.mkdir(parents=True, exist_ok=True)
    np.savez(arguments.exp / "model.npz", **weights)
    print(f"{arguments.model} for {len(arguments.keywords)} keywords, saved in {arguments.exp}")
    print(f"accuracy on new speakers {np.mean(predicted == labels):.4f}")


if __name__ == "__main__":
    main()
