"""Is an answer of the right kind, and does it carry the parameters? Two sets of rules, nothing is run.

`paper` repeats the published harness: bash is what contains `.sh ` or `.py `, and a parameter is there
when its value is a substring. `strict` reads the answer as bash words or as a python syntax tree.

Neither follows control flow. An answer that carries the parameters and then does not run what carries them
still passes if it exits with 0: a job sent to the background with `&`, a failure swallowed by `|| true` or a
bare handler, a function that is never called, an option given twice. Some right answers are refused: commands
inside `bash -c`, values that a shell loop or `xargs` puts in.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from eval.facts import Facts
from eval.python_text import python_facts
from eval.shell_text import shell_facts
from mlbench_data.rows import BASH, PYTHON, Row

LONGEST = 100_000
"""Characters that mode strict reads. No answer is nearly as long, and ten megabytes would take an hour."""

Mode = Literal["strict", "paper"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Check:
    """What one set of rules says about one answer. `type` is the type found, `missing` parameter names."""

    type: str | None
    type_ok: bool
    parameters_ok: bool
    missing: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the answer may pass."""
        return self.type_ok and self.parameters_ok


def check(row: Row, code: str, mode: Mode) -> Check:
    """Checks one answer to a row. An empty answer has no type and no parameters under either rules."""
    required = row.parameters()
    if not code.strip():
        return Check(None, False, False, tuple(required))
    found: str | None
    if mode == "paper":
        found = BASH if ".sh " in code or ".py " in code else PYTHON
        missing = tuple(name for name, value in required.items() if value.lower() not in code.lower())
    else:
        found, facts = _read(code)
        missing = tuple(
            name for name, value in required.items() if facts is None or not facts.carry(name, value)
        )
    return Check(found, found == row.type, not missing, missing)


def check_both(row: Row, code: str) -> dict[str, Check]:
    """The check under each set of rules, by mode."""
    return {mode: check(row, code, mode) for mode in MODES}


def _read(code: str) -> tuple[str | None, Facts | None]:
    """The type of a text by what it parses as, and what it says; none if it is neither or too long."""
    if len(code) > LONGEST:
        return None, None
    facts = python_facts(code)
    if facts is not None:
        return PYTHON, facts
    facts = shell_facts(code)
    return (BASH, facts) if facts is not None else (None, None)
