"""All attacks, as root and as an ordinary user, from fresh and from forked interpreters."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from mlbench_data.files import PROJECT_ROOT
from tests.eval.attacks import ATTACKS, Attack

ORDINARY_USER = 1234
"""A number that needs no account."""


@pytest.fixture(scope="module", params=["root", "ordinary user"] if os.geteuid() == 0 else ["ordinary user"])
def user(request: pytest.FixtureRequest) -> list[str]:
    """The arguments that make somebody of the attacker's host."""
    return ["--user", str(ORDINARY_USER)] if request.param == "ordinary user" and os.geteuid() == 0 else []


@pytest.fixture(scope="module", params=["fresh", "forked"])
def found(request: pytest.FixtureRequest, user: list[str]) -> dict[str, Any]:
    """What became of all attacks."""
    preload = ["--preload", "numpy"] if request.param == "forked" else []
    command = [sys.executable, "-m", "tests.eval.attack_run", *user, *preload]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    assert values["user"] == (ORDINARY_USER if user else os.geteuid())
    return values


def test_every_attack_ends_as_it_must(found: dict[str, Any]) -> None:
    wrong = {
        attack.name: (found["ends"][attack.name], found["said"][attack.name])
        for attack in ATTACKS
        if not ends_as_it_must(attack, found["ends"][attack.name])
    }
    assert wrong == {}
    assert len(found["ends"]) == len(ATTACKS) >= 40


def test_nothing_is_left_and_nothing_is_changed(found: dict[str, Any]) -> None:
    assert found["left_running"] == []
    assert found["changed"] == []
    assert found["goes_on"], "ordinary programs do not run after the attacks"


def ends_as_it_must(attack: Attack, end: str) -> bool:
    """Whether the attack may end so."""
    return end in attack.ends or ("failed" in attack.ends and end.startswith("exited") and end != "exited 0")
