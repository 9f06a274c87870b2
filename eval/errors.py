"""The paper's error classes, assigned by rules where the evidence decides, else None.

E1 hallucination: another kind of output, an invented file or API. E2 lack of knowledge: a missing or
misspelt parameter, an unknown option, a wrong choice, a missing path. E3 knowledge manipulation: values
that had to be combined were not. E4 syntax: undefined names and syntax errors. The paper assigned them by
hand (arXiv 2311.09835); these rules read only the answer and the last lines that it wrote.
"""

import re
from collections.abc import Sequence
from typing import Literal

from eval.grading import Status
from eval.python_text import parsed
from mlbench_data.rows import PYTHON, Row

ErrorClass = Literal["E1", "E2", "E3", "E4"]

_PYTHON_STATEMENT = re.compile(
    r"^\s*(import \w|from [\w.]+ import |def \w+\(|class \w+|\w+ = )", re.MULTILINE
)
_NO_MODULE = re.compile(r"No module named '?(?P<module>\w+)")
# In the order in which they decide: a traceback's last line says more than what was printed before it.
_FROM_STDERR: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    (
        "E4",
        re.compile(r"^(SyntaxError|IndentationError|TabError|NameError|UnboundLocalError)\b", re.MULTILINE),
    ),
    ("E4", re.compile(r"syntax error near|unexpected EOF while|unbound variable|unexpected token")),
    (
        "E2",
        re.compile(r"error: (unrecognized arguments|ambiguous option|the following arguments are required)"),
    ),
    ("E2", re.compile(r"error: argument .*: (invalid|expected)")),
    (
        "E2",
        re.compile(
            r"^TypeError: .*(unexpected keyword|missing \d+ required|positional arguments?)", re.MULTILINE
        ),
    ),
    ("E1", re.compile(r"can't open file|command not found|^(ImportError|AttributeError)\b", re.MULTILINE)),
    ("E1", re.compile(r"^bash: .*No such file or directory|^ModuleNotFoundError\b", re.MULTILINE)),
    ("E2", re.compile(r"^(FileNotFoundError|NotADirectoryError|KeyError|ValueError)\b", re.MULTILINE)),
)


def error_class(
    row: Row, status: Status, code: str | None, missing: Sequence[str], stderr: str
) -> ErrorClass | None:
    """The class of a candidate that did not pass; None if it passed or the evidence does not decide.

    `missing` are the names of the parameters that the check did not find.
    """
    if code is None:
        return None
    if status == "no_code":
        return "E1"
    if status == "wrong_type":
        return "E4" if row.type == PYTHON and _broken_python(code) else "E1"
    if status == "missing_parameters":
        return "E3" if _uncombined(row, code, missing) else "E2"
    return _from_stderr(row, stderr) if status == "failed" else None


def _broken_python(code: str) -> bool:
    return parsed(code) is None and "```" not in code and _PYTHON_STATEMENT.search(code) is not None


def _uncombined(row: Row, code: str, missing: Sequence[str]) -> bool:
    """Whether every missing parameter is a path whose parts are all in the answer, only not joined."""
    required = row.parameters()
    for name in missing:
        parts = [part for part in required[name].split("/") if part not in ("", ".", "..")]
        if len(parts) < 2 or not all(part in code for part in parts):
            return False
    return bool(missing)


def _from_stderr(row: Row, stderr: str) -> ErrorClass | None:
    absent = _NO_MODULE.search(stderr)
    if absent and re.search(rf"\b{re.escape(absent['module'])}\b", row.output):
        return None  # The answer key needs that module too: the environment lacks it.
    return next((found for found, pattern in _FROM_STDERR if pattern.search(stderr)), None)
