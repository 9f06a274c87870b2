"""What each repository's programs need: read from YAML, and given to them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eval.checkouts import Checkout, find_checkouts
from eval.environments import DEFAULT, Environment, read_environments
from eval.execution import Runner
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.interface import Limits, Outcome
from mlbench_data.bad_input import BadInput
from mlbench_data.rows import Row


def test_a_file_names_repositories_and_what_they_need(tmp_path: Path) -> None:
    path = tmp_path / "environments.yaml"
    path.write_text(
        "LAVIS: {python: /opt/lavis/bin/python, variables: {A: b}, timeout: 600}\nbert: {prefix: cd src}\n"
        "vid2vid: {image: 'some:1', devices: [/dev/nvidia0, /dev/nvidiactl]}\n"
    )
    assert read_environments(path) == {
        "lavis": Environment("/opt/lavis/bin/python", {"A": "b"}, timeout=600),
        "bert": Environment(prefix="cd src"),
        "vid2vid": Environment(image="some:1", devices=("/dev/nvidia0", "/dev/nvidiactl")),
    }
    assert read_environments(None) == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "no environments"),
        ("[a]", "no environments"),
        ("a: [", "not YAML"),
        ("a: 3", "expected some of"),
        ("a: {pyhton: x}", "expected some of"),
        ("a: {variables: {N: 3}}", "numbers in quotes"),
        ("a: {variables: {'N=1': x}}", "variables"),
        ("a: {python: 3}", "python and prefix are text"),
        ("a: {timeout: 0}", "timeout is 0"),
        ("a: {timeout: .inf}", "timeout is inf"),
        ("a: {timeout: true}", "timeout is True"),
        ("a: {variables: {PATH: /bin}}", "PATH is the sandbox's own"),
        ("a: {variables: {'': x}}", "variables"),
        ('a: {variables: {A: "x\\0y"}}', "variables"),
        ('a: {python: "x\\0y"}', "python and prefix are text"),
        ("a: {timeout: soon}", "timeout is 'soon'"),
        ("a: {image: 3}", "image is 3"),
        ("a: {image: ''}", "image is ''"),
        ("a: {devices: /dev/nvidia0}", "devices is '/dev/nvidia0'"),
        ("a: {devices: [/etc/shadow]}", "expected a list such as"),
        ("a: {devices: [/dev/../etc/shadow]}", "expected a list such as"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "environments.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=wrong):
        read_environments(path)


def outcome(row: Row, repositories: Path, code: str, environment: Environment) -> Outcome:
    """What becomes of an answer to a row in an environment, in the real sandbox."""
    runner = Runner(
        sandbox=Bubblewrap(),
        limits=Limits(seconds=20, memory=256 << 20),
        repositories=repositories,
        checkouts=find_checkouts(repositories, [row], any_commit=False),
        python=Path(sys.executable),
        workers=1,
        environments={row.repository.lower(): environment},
    )
    return runner.run(row, code)


def test_variables_and_preparation_reach_the_program(rows: list[Row], repositories: Path) -> None:
    environment = Environment(variables={"WHAT": "variables"}, prefix="export ALSO=prefix")
    row = replace(rows[0], prefix_code="export THEN=$ALSO-of-the-row")
    found = outcome(row, repositories, "echo $WHAT $ALSO $THEN", environment)
    assert found.stdout == "variables prefix prefix-of-the-row\n"


def test_a_repositorys_own_time_counts(rows: list[Row], repositories: Path) -> None:
    assert outcome(rows[0], repositories, "sleep 5", Environment(timeout=0.5)).ending == "timed_out"


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/true"])
def test_an_interpreter_that_is_not_there_is_no_failure_of_the_answer(
    rows: list[Row], repositories: Path, python: str
) -> None:
    found = outcome(rows[0], repositories, "true", Environment(python=python))
    assert found.ending == "infrastructure"
    assert python in found.detail


def test_an_outcome_in_another_environment_is_not_used_again(rows: list[Row], repositories: Path) -> None:
    row = rows[0]
    runner = Runner(
        Bubblewrap(),
        Limits(),
        repositories,
        {"tiny": Checkout(repositories / "tiny", "x", None, False)},
        Path(sys.executable),
        1,
    )
    other = replace(runner, environments={"tiny": Environment(variables={"A": "b"})})
    assert runner.environment(row) == DEFAULT
    assert runner.identity(row, "true") != other.identity(row, "true")
