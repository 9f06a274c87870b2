"""Masked language modelling: trains the output layer on top of a frozen encoder.

python run_pretraining.py --input_file=./data/fables.txt --model_dir=./models/cased/brick-L2-H32
"""

import argparse

import numpy as np

from textbrick import BrickConfig, BrickModel, build_vocabulary
from textbrick.head import SoftmaxHead
from textbrick.options import existing_file, model_folder
from textbrick.vocabulary import SPECIAL

LENGTH = 24
MASK = SPECIAL.index("[MASK]")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--input_file", type=existing_file, required=True, help="plain text, a sequence a line"
    )
    parser.add_argument("--model_dir", type=model_folder, required=True, help="folder with config.json")
    parser.add_argument("--masked_lm_prob", type=float, default=0.15, help="share of masked pieces")
    parser.add_argument("--num_train_steps", type=int, default=20, help="updates of the output layer")
    arguments = parser.parse_args()
    if not 0.05 <= arguments.masked_lm_prob <= 0.5:
        parser.error("--masked_lm_prob must be between 0.05 and 0.5")
    if not 1 <= arguments.num_train_steps <= 200:
        parser.error("--num_train_steps must be between 1 and 200")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    config = BrickConfig.from_folder(arguments.model_dir)
    text = arguments.input_file.read_text(encoding="utf-8")
    vocabulary = build_vocabulary(text, 150, "WordLevel", config.lower_case)
    numbers = np.array([vocabulary.encode(line, LENGTH) for line in text.splitlines()])
    model = BrickModel(config, vocab_size=len(vocabulary.pieces))
    head = SoftmaxHead(config.hidden_size, len(vocabulary.pieces))
    rng = np.random.default_rng(7)
    for _ in range(arguments.num_train_steps):
        masked = (numbers >= len(SPECIAL)) & (rng.random(numbers.shape) < arguments.masked_lm_prob)
        states = model.forward(np.where(masked, MASK, numbers))
        loss = head.step(states[masked], numbers[masked], learning_rate=0.5)
    np.save(arguments.model_dir / "output_layer.npy", head.weight)
    print(f"{config.num_layers} layers, hidden size {config.hidden_size}, lower case {config.lower_case}")
    print(f"loss after {arguments.num_train_steps} steps: {loss:.4f}")


if __name__ == "__main__":
    main()
