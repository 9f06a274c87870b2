"""Shows what masking does to a text: prints masked lines, trains nothing.

python create_pretraining_data.py --input_file=./data/fables.txt --max_predictions=4
"""

import argparse
import random

from textbrick.options import existing_file
from textbrick.vocabulary import words_of


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--input_file", type=existing_file, required=True, help="plain text")
    parser.add_argument("--max_predictions", type=int, default=4, help="most masked words in a line")
    parser.add_argument("--dupe_factor", type=int, default=1, help="differently masked copies of each line")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rng = random.Random(0)
    for line in arguments.input_file.read_text(encoding="utf-8").splitlines():
        words = words_of(line, lower_case=True)
        for _ in range(arguments.dupe_factor):
            masked = set(rng.sample(range(len(words)), min(arguments.max_predictions, len(words))))
            print(" ".join("[MASK]" if place in masked else word for place, word in enumerate(words)))


if __name__ == "__main__":
    main()
