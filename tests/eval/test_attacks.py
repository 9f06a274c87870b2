"""All attacks, as root and as an ordinary user, from fresh and from forked interpreters."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from eval.sandbox.attacks import ATTACKS, Attack
from mlbench_data.files import PROJECT_ROOT
from tests.helpers import RunScript, error_line

ORDINARY_USER = 1234
"""A number that needs no account."""


@pytest.fixture(scope="module", params=["root", "ordinary user"] if os.geteuid() == 0 else ["ordinary user"])
def user(request: pytest.FixtureRequest) -> list[str]:
    """The arguments that make somebody of the attacker's host."""
    return ["--user", str(ORDINARY_USER)] if request.param == "ordinary user" and os.geteuid() == 0 else []


@pytest.fixture(scope="module", params=["fresh", "forked"])
def found(request: pytest.FixtureRequest, user: list[str]) -> dict[str, Any]:
    """What became of all attacks."""
    preload = ["--preload", "numpy"] if request.param == "forked" else ["--preload", "[]"]
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to the ordinary user
        out = Path(folder, "found.json")
        Path(folder).chmod(0o777)
        command = [sys.executable, "eval/attack.py", *user, *preload, "--out", str(out)]
        done = subprocess.run(
            command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=300, check=False
        )
        assert out.exists(), done.stderr
        values: dict[str, Any] = json.loads(out.read_text())
    assert values["user"] == (ORDINARY_USER if user else os.geteuid())
    return values


def test_every_attack_is_held(found: dict[str, Any]) -> None:
    assert {name: (found["ends"][name], found["said"][name]) for name in found["got_through"]} == {}
    assert len(found["ends"]) == len(ATTACKS) >= 40


def test_nothing_is_left_and_nothing_is_changed(found: dict[str, Any]) -> None:
    assert found["left_running"] == []
    assert found["changed"] == []
    assert found["goes_on"], "ordinary programs do not run after the attacks"


def test_an_attack_that_got_through_is_told() -> None:
    attack = Attack("reading", "bash", "! cat {secret}")
    assert attack.code_with({"secret": "/a/b"}) == "! cat /a/b"
    assert attack.held("exited 0")
    assert not attack.held("exited 1")
    assert not attack.held("infrastructure")
    assert Attack("killing", "bash", "", ("failed",)).held("exited 137")
    assert not Attack("killing", "bash", "", ("failed",)).held("exited 0")


@pytest.mark.parametrize("user", ["-1", "0", "99999999999"])
def test_nobody_is_told_that_they_were_somebody_else(user: str, run_script: RunScript) -> None:
    """-1 changes nothing: the attacks would run as root."""
    assert "not the number of an ordinary user" in error_line(run_script("eval/attack.py", "--user", user))
