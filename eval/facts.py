"""What an answer says once comments and printed text are gone, and whether a parameter is among it."""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?:(?:=|\s+)(?P<value>.+))?", re.DOTALL)


@dataclass(frozen=True)
class Facts:
    """The parts of an answer that can carry a parameter.

    `pairs` are named values (`--lr 0.1`, `lr=0.1`); `options` the names used, with or without a value;
    `values` every value, named or not; `series` numbers that stand together (`(50, 49, 512)`);
    `programs` the scripts, modules and functions that are used. Names are in canonical form.
    """

    pairs: tuple[tuple[str, str], ...]
    options: frozenset[str]
    values: tuple[str, ...]
    series: tuple[tuple[Decimal, ...], ...]
    programs: tuple[str, ...]

    def carry(self, name: str, required: str) -> bool:
        """Whether the required parameter is there.

        A requirement written as an option (`-b 16`) asks for that option. Otherwise, an option with the
        parameter's own name decides; where there is none (names in the published rows are often only
        descriptions), the value may stand anywhere. Letters compare without case, numbers as numbers.
        """
        required = required.strip()
        if not required:
            return True
        option = _OPTION.fullmatch(required)
        if option:
            wanted = canonical(option["name"])
            if option["value"] is None:
                return wanted in self.options
            return self._named(wanted, option["value"].strip()) is True
        decided = self._named(canonical(name), required)
        return self._anywhere(required) if decided is None else decided

    def _named(self, name: str, required: str) -> bool | None:
        """Whether the value of the option called `name` is the required one; None without such an option."""
        given = [value for pair_name, value in self.pairs if pair_name == name]
        return any(same_value(required, value) for value in given) if given else None

    def _anywhere(self, required: str) -> bool:
        wanted = number_series(required)
        if len(wanted) > 1 and wanted in self.series:
            return True
        if any(same_value(required, value) for value in self.values):
            return True
        if number(required) is not None:
            return False
        if canonical(required) in self.options:
            return True
        word = re.compile(rf"(?<![a-z0-9]){re.escape(required.lower())}(?![a-z0-9])")
        return any(word.search(program.lower()) for program in self.programs)


def canonical(name: str) -> str:
    """An option's name for comparison: `--batch-size`, `batch_size` and `batch size` are one name."""
    return re.sub(r"[\s-]+", "_", name.strip().lstrip("-")).lower()


def number(text: str) -> Decimal | None:
    """The number that the whole text is, exactly, or None."""
    try:
        return Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:  # an exponent of twenty digits, as a looping model writes
        return None


def number_series(text: str) -> tuple[Decimal, ...]:
    """The numbers of `(50,28,28)`, `3 256 320` or `8,10`; empty if the text is anything else."""
    parts = re.split(r"[,\s]+", text.strip().strip("()[]").strip(", "))
    numbers = [number(part) for part in parts]
    return tuple(item for item in numbers if item is not None) if None not in numbers else ()


def same_value(required: str, found: str) -> bool:
    """Whether a value is the required one: numbers by size, text as a whole or as whole parts of a path.

    `cora` is in `data/cora.csv` but not in `cora_ml`; `./model` is in `./model/vocab.txt` but not in
    `./old/model`; 0.1 is not in 0.15.
    """
    if number(required) is not None:
        return number(required) == number(found)
    if number_series(required):
        return number_series(required) == number_series(found)
    required, found = required.lower(), found.lower()
    if required == found:
        return True
    from_here = required.startswith("./")
    part = re.escape(required.removeprefix("./").rstrip("/")) + r"(?![\w-]|\.\d)"
    if from_here:
        return re.match(part, found.removeprefix("./")) is not None
    return re.search(rf"(?<![\w-]){part}", found) is not None
