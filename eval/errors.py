"""The paper's error classes, assigned by rules where the evidence decides, else none.

E1 hallucination: another kind of output, an invented file or API, nothing to do with the task. E2 lack of
knowledge: a missing or misspelt parameter, an unknown option, a wrong choice, a missing path. E3 knowledge
manipulation: values that had to be combined or worked out were not. E4 syntax: undefined names and syntax
errors. The paper assigned them by hand (arXiv 2311.09835); these rules read only the answer, the row's own
answer and the last lines that were written. tests/eval/labelled_failures.jsonl holds failures that people
have labelled, to measure the rules against.

1. Of the wrong kind: E4 if it is python that does not parse, for a python row, and names something of the
   repository that the row's own answer names; else E1.
2. Parameters missing: E3 if each is a path whose parts are all there, or a share that stands there as its
   percentage; E1 if nothing of the repository is named that the row's own answer names; else E2.
3. Failed: by the first pattern below that is found in stderr.
"""

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eval.checks import LONGEST
from eval.facts import number
from eval.grading import Status
from eval.python_text import parsed
from eval.shell_text import shell_facts
from mlbench_data.rows import PYTHON, Row

ErrorClass = Literal["E1", "E2", "E3", "E4"]

_PYTHON_STATEMENT = re.compile(
    r"^[ \t]*(import \w|from [\w.]+ import |def \w+\(|class \w+|\w+ = )", re.MULTILINE
)
_NO_MODULE = re.compile(r"No module named '?(?P<module>\w+)")
_LIBRARIES = {"matplotlib", "numpy", "pandas", "scipy", "sklearn", "tensorflow", "torch", "transformers"}
"""What answers to rows of any repository import, beside the standard library."""

_LEAST_DIGIT = -12
"""The place of a share's first digit: smaller ones are nobody's percentage, and can be long to print."""

# In the order in which they decide: a traceback's last line says more than what was printed before it.
_FROM_STDERR: tuple[tuple[ErrorClass, str], ...] = (
    ("E4", r"^(SyntaxError|IndentationError|TabError|NameError|UnboundLocalError)\b.*"),
    ("E4", r".*(syntax error near|unexpected EOF while|unbound variable|unexpected token).*"),
    ("E2", r".*\berror: (unrecognized arguments|ambiguous option|the following arguments are required).*"),
    ("E2", r".*\berror: argument .*: (invalid|expected).*"),
    ("E2", r"^TypeError: .*(unexpected keyword|missing \d+ required|positional arguments?).*"),
    ("E2", r"^\S+\.py: error: .*"),
    ("E1", r".*(can't open file|command not found).*"),
    ("E1", r"^(ImportError|AttributeError|ModuleNotFoundError)\b.*"),
    ("E2", r".*\bline \d+: cd: .*No such file or directory.*"),
    ("E1", r".*(^bash|\bline \d+): .*No such file or directory.*"),
    ("E2", r"^(FileNotFoundError|NotADirectoryError|KeyError|ValueError)\b.*"),
)


@dataclass(frozen=True)
class Error:
    """A class, and the line or the words that it rests on."""

    kind: ErrorClass
    evidence: str


def error_of(row: Row, status: Status, code: str | None, missing: Sequence[str], stderr: str) -> Error | None:
    """The error of a candidate that did not pass; None if it passed or the evidence does not decide.

    `missing` are the names of the parameters that the check did not find. Of a huge answer the first part is
    read.
    """
    if code is None:
        return None
    code = code[:LONGEST]
    if status == "no_code":
        return Error("E1", "no code")
    if status == "wrong_type":
        return _of_the_wrong_kind(row, code)
    if status == "missing_parameters":
        return _without_parameters(row, code, missing)
    return _from_stderr(row, stderr) if status == "failed" else None


def _of_the_wrong_kind(row: Row, code: str) -> Error:
    broken = parsed(code) is None and "```" not in code and _PYTHON_STATEMENT.search(code) is not None
    if row.type == PYTHON and broken and _names_the_repository(row, code):
        return Error("E4", "python that does not parse")
    return Error("E1", f"no {row.type}")


def _without_parameters(row: Row, code: str, missing: Sequence[str]) -> Error:
    names = ", ".join(missing)
    required = row.parameters()
    if missing and all(_not_worked_out(required[name], code) for name in missing):
        return Error("E3", f"not combined or worked out: {names}")
    if not _names_the_repository(row, code):
        return Error("E1", f"names none of {', '.join(sorted(_names_of_the_key(row)))}")
    return Error("E2", f"missing or wrong: {names}")


def _not_worked_out(value: str, code: str) -> bool:
    """Whether all parts of a path are in the answer, only not joined, or a share as its percentage."""
    share = number(value)
    if share is not None:
        if not 0 < share < 1 or share.adjusted() < _LEAST_DIGIT:
            return False
        percentage = re.escape(format((share * 100).normalize(), "f"))
        return re.search(rf"(?<![\w.]){percentage}(?![\w.])", code) is not None
    parts = [part for part in value.split("/") if part not in ("", ".", "..")]
    return len(parts) > 1 and all(part in code for part in parts)


def _names_the_repository(row: Row, code: str) -> bool:
    """Whether the answer names anything that the row's own answer uses, where that is known."""
    names = _names_of_the_key(row)
    return not names or any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code) for name in names)


def _names_of_the_key(row: Row) -> set[str]:
    """The scripts that the row's own answer runs, or what it imports of its repository."""
    if row.type != PYTHON:
        facts = shell_facts(row.output)
        return {program.rsplit("/", 1)[-1] for program in facts.programs} if facts else set()
    tree = parsed(row.output)
    names: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if not _is_library(alias.name)}
        elif isinstance(node, ast.ImportFrom) and not _is_library(node.module or ""):
            names |= {alias.name for alias in node.names} | {node.module or ""}
    return names - {""}


def _is_library(module: str) -> bool:
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in _LIBRARIES


def _from_stderr(row: Row, stderr: str) -> Error | None:
    absent = _NO_MODULE.search(stderr)
    if absent and re.search(rf"\b{re.escape(absent['module'])}\b", row.output):
        return None  # the row's own answer needs that module too: the environment lacks it
    for kind, pattern in _FROM_STDERR:
        if found := re.search(pattern, stderr, re.MULTILINE):
            return Error(kind, found[0].strip())
    return None
