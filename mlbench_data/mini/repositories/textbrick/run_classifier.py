"""Fine-tunes a classifier on one of five toy versions of GLUE tasks.

python run_classifier.py --task_name=SST-2 --do_train=True
"""

import argparse
import zlib

import numpy as np

from textbrick import BrickConfig, BrickModel
from textbrick.head import SoftmaxHead
from textbrick.options import boolean

TASKS = {
    "CoLA": ("the dog sleeps here", "the sleeps dog here the"),
    "SST-2": ("a bright and funny film", "a dull and tired film"),
    "MRPC": ("he left early | he went away early", "he left early | she bought two lamps"),
    "QNLI": ("who came | Clara came on Tuesday", "who came | the door is blue"),
    "RTE": ("all birds sing | this bird sings", "all birds sing | no bird sings"),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--task_name", choices=TASKS, required=True, help="toy version of a GLUE task")
    parser.add_argument("--do_train", type=boolean, default=False, help="True to train")
    parser.add_argument("--do_predict", type=boolean, default=False, help="True to print a prediction")
    parser.add_argument("--max_seq_length", type=int, default=32, help="longer texts are cut")
    parser.add_argument("--train_batch_size", type=int, default=8, help="texts in an update")
    parser.add_argument("--learning_rate", type=float, default=0.05, help="step of gradient descent")
    arguments = parser.parse_args()
    if not (arguments.do_train or arguments.do_predict):
        parser.error("at least one of --do_train and --do_predict must be True")
    if not 8 <= arguments.max_seq_length <= 128:
        parser.error("--max_seq_length must be between 8 and 128")
    if not 1 <= arguments.train_batch_size <= 64:
        parser.error("--train_batch_size must be between 1 and 64")
    if not 0.0 < arguments.learning_rate < 1.0:
        parser.error("--learning_rate must be above 0 and below 1")
    return arguments


def examples(task: str, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (64, length) and labels: either text of the pair, with some letters replaced by noise."""
    rng = np.random.default_rng(zlib.crc32(task.encode()))
    labels = rng.integers(2, size=64)
    texts = [TASKS[task][label].encode().ljust(length)[:length] for label in labels]
    numbers = np.array([list(text) for text in texts])
    noise = rng.random(numbers.shape) < 0.1
    return np.where(noise, rng.integers(97, 123, size=numbers.shape), numbers), labels


def main() -> None:
    arguments = parse_arguments()
    config = BrickConfig(hidden_size=32, num_layers=1, num_heads=4)
    numbers, labels = examples(arguments.task_name, arguments.max_seq_length)
    vectors = BrickModel(config).forward(numbers).mean(axis=1)
    head = SoftmaxHead(config.hidden_size, classes=2)
    if arguments.do_train:
        for start in [*range(0, len(labels), arguments.train_batch_size)] * 5:
            batch = slice(start, start + arguments.train_batch_size)
            loss = head.step(vectors[batch], labels[batch], arguments.learning_rate)
        print(f"{arguments.task_name}: loss {loss:.4f}")
    predicted = head.shares(vectors).argmax(axis=1)
    print(f"training accuracy {np.mean(predicted == labels):.4f}")
    if arguments.do_predict:
        print(f"first prediction: {predicted[0]}")


if __name__ == "__main__":
    main()
