"""Checkouts are at their commit, whole, and can be gone on with after a kill."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.checkout import NotFetched, checkout, chosen_repositories
from mlbench_data.repositories import Repository, read_repositories
from tests.helpers import RunScript, error_line

SCRIPT = "mlbench_data/checkout.py"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with two commits; the first is the pinned one."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for text in ("first", "second"):
        (folder / "README.md").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", text)
    return folder


@pytest.fixture
def repository(origin: Path) -> Repository:
    return Repository("tiny", f"file://{origin}", git(origin, "rev-parse", "HEAD~1"), "text", "test")


def test_a_repository_is_cloned_at_its_commit_and_shallow(tmp_path: Path, repository: Repository) -> None:
    place = checkout(repository, tmp_path / "out", 60)
    assert place == tmp_path / "out" / "tiny"
    assert (place / "README.md").read_text() == "first"
    assert git(place, "rev-parse", "HEAD") == repository.commit
    assert git(place, "rev-list", "--all", "--count") == "1"


def test_what_is_there_is_proven_and_not_fetched_again(
    tmp_path: Path, repository: Repository, origin: Path
) -> None:
    checkout(repository, tmp_path / "out", 60)
    shutil.rmtree(origin)
    assert checkout(repository, tmp_path / "out", 60) == tmp_path / "out" / "tiny"


def test_a_fetch_that_was_killed_goes_on(tmp_path: Path, repository: Repository) -> None:
    making = tmp_path / "out" / ".tiny.making"
    making.mkdir(parents=True)
    git(making, "init", "--quiet")
    for name in ("shallow.lock", "index.lock"):
        (making / ".git" / name).touch()
    (making / "README.md").write_text("half")
    assert (checkout(repository, tmp_path / "out", 60) / "README.md").read_text() == "first"
    assert not making.exists()


@pytest.mark.parametrize("change", ["another commit", "a changed file", "no repository"])
def test_a_checkout_that_is_something_else_is_not_taken(
    tmp_path: Path, repository: Repository, origin: Path, change: str
) -> None:
    place = tmp_path / "out" / "tiny"
    if change == "another commit":
        git(tmp_path, "clone", "--quiet", str(origin), str(place))
    elif change == "a changed file":
        checkout(repository, tmp_path / "out", 60)
        (place / "README.md").write_text("mine")
    else:
        place.mkdir(parents=True)
    with pytest.raises(NotFetched, match=r"is at .* and not at|has 1 changed files|no git checkout"):
        checkout(repository, tmp_path / "out", 60)
    assert place.exists(), "what is somebody's is left alone"


def test_a_repository_that_cannot_be_had_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    missing = Repository("gone", f"file://{tmp_path}/nowhere", "0" * 40, "text", "test")
    with pytest.raises(NotFetched, match="git stopped with exit code 128"):
        checkout(missing, tmp_path, 60)
    assert not (tmp_path / "gone").exists()


def test_the_command_goes_on_after_a_failure_and_says_so(
    tmp_path: Path, repository: Repository, run_script: RunScript
) -> None:
    described = tmp_path / "own.yaml"
    described.write_text(
        f"tiny: {{url: '{repository.url}', commit: '{repository.commit}', domain: text, role: test}}\n"
        f"gone: {{url: 'file://{tmp_path}/nowhere', commit: '{'0' * 40}', domain: text, role: test}}\n"
    )
    done = run_script(
        SCRIPT, "--repositories", described, "--only", "gone", "tiny", "--out", tmp_path / "out"
    )
    assert done.returncode == 1
    assert "1 of 2 repositories" in done.stdout
    assert "gone: git stopped with exit code 128" in done.stderr
    assert (tmp_path / "out" / "tiny" / "README.md").read_text() == "first"


def test_a_name_that_is_not_described_is_one_line(tmp_path: Path, run_script: RunScript) -> None:
    line = error_line(run_script(SCRIPT, "--only", "dgll", "--out", tmp_path / "out"))
    assert "unknown repository 'dgll'; described are dgl, bert" in line
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput):
        chosen_repositories(read_repositories(), ["dgll"])


def test_a_git_that_outlives_its_killed_parent_is_waited_for(tmp_path: Path, repository: Repository) -> None:
    """Else the next run would take away the locks of one that is still fetching."""
    (tmp_path / "bin").mkdir()
    real = shutil.which("git")
    slow = tmp_path / "bin" / "git"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *fetch*) echo $$ > {tmp_path}/fetching; sleep 3;; esac\nexec {real} "$@"\n'
    )
    slow.chmod(0o755)
    program = (
        "import sys\nfrom pathlib import Path\nfrom mlbench_data.checkout import checkout\n"
        "from mlbench_data.repositories import Repository\n"
        "checkout(Repository('tiny', sys.argv[1], sys.argv[2], 'text', 'test'), Path(sys.argv[3]), 60)\n"
    )
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", program, repository.url, repository.commit, str(tmp_path / "out")]
    killed = subprocess.Popen(command, env=environment)
    while not (tmp_path / "fetching").exists():
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    started = time.monotonic()
    assert (checkout(repository, tmp_path / "out", 60) / "README.md").read_text() == "first"
    assert time.monotonic() - started > 1, "the git of the killed run was still at work"
