"""Candidates run in the repositories that the rows are about, as their pinned commits have them."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from eval import checkouts
from eval.checkouts import content_hash, find_checkouts
from mlbench_data.bad_input import BadInput
from mlbench_data.repositories import Repository
from mlbench_data.rows import Row


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", *settings, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def commit(repositories: Path) -> str:
    """The tiny repository's first and only commit."""
    folder = repositories / "tiny"
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def pinned(commit: str, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The tiny repository as one of the paper's."""
    described = Repository("tiny", "https://example.org/Somebody/tiny.git", commit, "none", "test")
    monkeypatch.setattr(checkouts, "read_repositories", lambda: {"tiny": described})
    return described


def test_a_checkout_at_its_pinned_commit_is_proven(
    repositories: Path, rows: list[Row], pinned: Repository
) -> None:
    found = find_checkouts(repositories, rows, any_commit=False)["tiny"]
    assert found is not None
    assert (found.proven, found.commit) == (True, pinned.commit)


@pytest.mark.parametrize("change", ["another commit", "a changed file", "no git"])
def test_a_checkout_that_is_something_else_is_refused_or_told(
    repositories: Path, rows: list[Row], pinned: Repository, change: str
) -> None:
    folder = repositories / "tiny"
    if change == "no git":
        (folder / ".git").rename(repositories / "git")
    else:
        (folder / "tiny.py").write_text("changed")
    if change == "another commit":
        git(folder, "commit", "--quiet", "-am", "two")
    with pytest.raises(BadInput, match=r"tiny (is|has) .*--any_commit"):
        find_checkouts(repositories, rows, any_commit=False)
    found = find_checkouts(repositories, rows, any_commit=True)["tiny"]
    assert found is not None
    assert not found.proven
    assert (found.commit is None) == (change == "no git")


def test_a_repository_of_the_same_name_elsewhere_is_another_one(
    repositories: Path, rows: list[Row], pinned: Repository
) -> None:
    (repositories / "tiny" / "tiny.py").write_text("changed")
    other = [replace(row, github="https://example.org/else/tiny") for row in rows]
    found = find_checkouts(repositories, other, any_commit=False)["tiny"]
    assert found is not None
    assert not found.proven


def test_letters_case_of_a_folder_does_not_matter(repositories: Path, rows: list[Row]) -> None:
    (repositories / "tiny").rename(repositories / "TINY")
    found = find_checkouts(repositories, rows, any_commit=False)["tiny"]
    assert found is not None
    assert found.folder.name == "TINY"


def test_no_folder_is_no_checkout(tmp_path: Path, rows: list[Row]) -> None:
    assert find_checkouts(tmp_path, rows, any_commit=False) == {"tiny": None}


def test_names_that_are_no_text_are_hashed_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    before = content_hash(tmp_path)
    Path(tmp_path, b"\xff.bin".decode(errors="surrogateescape")).touch()
    assert content_hash(tmp_path) != before
