"""Error classes: assigned where the evidence decides, else None."""

from dataclasses import replace

import pytest

from eval.errors import error_class
from eval.grading import Status
from mlbench_data.rows import BASH, PYTHON, Row

ROW = Row(
    github_id=1,
    github="https://example.org/somebody/repository",
    repo_id=1,
    id=1,
    path=".",
    arguments="{'model': './models/small', 'lr': '0.1'}",
    instruction="",
    oracle="",
    type=BASH,
    prefix_code="",
    output="python train.py --model ./models/small --lr 0.1",
)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("train.py: error: unrecognized arguments: --learning 1", "E2"),
        ("train.py: error: argument --data: invalid choice: 'Cora'", "E2"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "E2"),
        ("python: can't open file '/folder/invented.py': [Errno 2] No such file or directory", "E1"),
        ("ModuleNotFoundError: No module named 'invented'", "E1"),
        ("AttributeError: module 'x' has no attribute 'y'", "E1"),
        ("NameError: name 'x' is not defined", "E4"),
        ("bash: line 3: syntax error near unexpected token `('", "E4"),
        ("Segmentation fault", None),
    ],
)
def test_the_last_output_of_a_failed_run_decides(stderr: str, expected: str | None) -> None:
    assert error_class(ROW, "failed", "python x.py", (), stderr) == expected


def test_a_module_that_the_answer_key_needs_too_is_no_invention() -> None:
    row = replace(ROW, output="import torch\nprint(torch.ones(1))")
    assert (
        error_class(row, "failed", "import torch", (), "ModuleNotFoundError: No module named 'torch'") is None
    )


def test_values_that_were_not_combined_are_e3_and_missing_ones_e2() -> None:
    apart = "python train.py --root ./models --name small --lr 0.1"
    assert error_class(ROW, "missing_parameters", apart, ("model",), "") == "E3"
    assert error_class(ROW, "missing_parameters", "python train.py", ("model", "lr"), "") == "E2"


def test_python_that_does_not_parse_is_e4_and_another_kind_of_output_e1() -> None:
    row = replace(ROW, type=PYTHON)
    assert error_class(row, "wrong_type", "import x\nprint('a", (), "") == "E4"
    assert error_class(row, "wrong_type", "python train.py", (), "") == "E1"
    assert error_class(row, "no_code", "", (), "") == "E1"


@pytest.mark.parametrize("status", ["passed", "timed_out", "out_of_memory", "output_limit", "infrastructure"])
def test_what_says_nothing_about_the_error_has_no_class(status: Status) -> None:
    assert error_class(ROW, status, "python x.py", (), "NameError: x") is None


def test_a_candidate_that_was_never_given_has_no_class() -> None:
    assert error_class(ROW, "no_code", None, ("lr",), "") is None
