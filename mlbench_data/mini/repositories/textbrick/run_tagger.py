"""Tags each word of a sentence by simple spelling rules, as a baseline for a learnt tagger.

python run_tagger.py --tag_set NER --text "Clara went to the Library"
"""

import argparse

from textbrick.vocabulary import words_of


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--tag_set", choices=("NER", "POS"), required=True, help="names or parts of speech")
    parser.add_argument("--text", required=True, help="one sentence")
    parser.add_argument("--max_words", type=int, default=32, help="further words are left out")
    return parser.parse_args()


def tag(word: str, tag_set: str) -> str:
    if tag_set == "NER":
        return "NAME" if word[0].isupper() else "O"
    return "VERB" if word.endswith(("ed", "ing")) else "WORD" if word.isalpha() else "MARK"


def main() -> None:
    arguments = parse_arguments()
    for word in words_of(arguments.text, lower_case=False)[: arguments.max_words]:
        print(word, tag(word, arguments.tag_set))


if __name__ == "__main__":
    main()
