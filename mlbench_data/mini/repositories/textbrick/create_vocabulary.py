"""Learns a vocabulary from a text file and writes one piece a line.

python create_vocabulary.py --corpus_file=./data/fables.txt --vocab_size=180
"""

import argparse
import pathlib

from textbrick.options import boolean, existing_file
from textbrick.vocabulary import ALGORITHMS, build_vocabulary


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--corpus_file", type=existing_file, required=True, help="plain text to learn from")
    parser.add_argument("--vocab_size", type=int, default=200, help="largest number of pieces")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="WordPiece", help="how pieces are found")
    parser.add_argument("--do_lower_case", type=boolean, default=True, help="True or False")
    parser.add_argument("--output_file", type=pathlib.Path, default="vocab.txt", help="file to write")
    arguments = parser.parse_args()
    if arguments.vocab_size < 10:
        parser.error("--vocab_size must be at least 10")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    text = arguments.corpus_file.read_text(encoding="utf-8")
    vocabulary = build_vocabulary(text, arguments.vocab_size, arguments.algorithm, arguments.do_lower_case)
    arguments.output_file.write_text("\n".join(vocabulary.pieces) + "\n", encoding="utf-8")
    print(f"{len(vocabulary.pieces)} pieces ({arguments.algorithm}) in {arguments.output_file}")


if __name__ == "__main__":
    main()
