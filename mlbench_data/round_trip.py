"""Proof that a tokenizer is the right one: it gives back the text that it reads."""

from typing import Any

from mlbench_data.bad_input import BadInput

PROBE = (
    "def main(x):\n    for name in ['a', \"b\"]:\n\t\tprint(f'{name} , {x!r} .')  # don't  join\n\n\n"
    '```bash\npython train.py --lr 1e-4 \\\n    --out ~/runs/été_你好_🎉 && echo "$HOME"\n```\n'
)
"""What code is made of and what tokenizers have lost of it: runs of spaces, tabs, empty lines, spaces before
punctuation, characters outside ASCII and outside the first 65,536.
"""


def prove_round_trip(tokenizer: Any, file: str | None, where: str) -> None:
    """Raises BadInput unless a tokenizer decodes what it encodes to the same text, but for a space at its
    beginning, and gives the tokens that its `file`, a tokenizer.json, does.
    """
    ids = tokenizer(PROBE, add_special_tokens=False, split_special_tokens=True).input_ids
    found = tokenizer.decode(ids)
    if found.removeprefix(" ") != PROBE:
        place = next((at for at, (a, b) in enumerate(zip(found, PROBE, strict=False)) if a != b), len(found))
        start = max(0, place - 10)
        raise BadInput(
            f"{where}: its tokenizer does not give back {PROBE[start : place + 20]!r}, read as "
            f"{found[start : place + 20]!r}; fetch its tokenizer.json again, or take another model"
        )
    if file is not None and ids != _ids_by(file):
        raise BadInput(
            f"{where}: its tokenizer and {file} do not give the same tokens; see class and settings in "
            "tokenizer_config.json"
        )


def _ids_by(file: str) -> list[int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(file)
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(PROBE, add_special_tokens=False).ids
