"""Clones repositories at their pinned commits, shallow, and proves what was cloned.

python mlbench_data/checkout.py --out checkouts
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import make_folder, one_at_a_time
from mlbench_data.progress import progress
from mlbench_data.repositories import Repositories, Repository, read_repositories


@dataclass(frozen=True)
class CheckoutConfig:
    """What to clone, and where to."""

    out: str
    """Folder for the checkouts, one folder each; give it to build.py as --readmes."""
    only: list[str] = field(default_factory=list)
    """Names of the repositories to clone; all that are described if not given."""
    repositories: str | None = None
    """YAML file that describes repositories of your own."""
    timeout: float = 1800.0
    """Seconds that one repository may take."""


@dataclass(frozen=True)
class Git:
    """The program git. Each call holds `lock` too, if there is one: if this process is killed and git goes on
    for a while, nobody else starts on the same folder.
    """

    timeout: float
    lock: int | None = None

    def run(self, arguments: list[str]) -> str:
        """What git prints. Raises NotFetched."""
        safe = ["-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"]
        safe += ["-c", "core.fsmonitor=false"]  # a checkout's own configuration could name a program there
        try:
            done = subprocess.run(
                ["git", *safe, "-c", "advice.detachedHead=false", *arguments],
                capture_output=True,
                text=True,
                timeout=self.timeout,
                pass_fds=() if self.lock is None else (self.lock,),
                env=_own_environment() | {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"},
            )
        except FileNotFoundError as error:
            raise NotFetched("git is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise NotFetched(f"git took more than {self.timeout:g} s") from error
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())[-300:]
            raise NotFetched(f"git stopped with exit code {done.returncode}: {reason}")
        return done.stdout


class NotFetched(Exception):
    """A repository could not be had: no network, no such commit, or another program's folder."""


def main(config: CheckoutConfig) -> int:
    """Clones repositories at their pinned commits, shallow, and proves what was cloned."""
    if shutil.which("git") is None:
        raise BadInput("git is not installed; install it to clone repositories")
    chosen = chosen_repositories(read_repositories(config.repositories), config.only)
    folder = make_folder(config.out)
    cloned = progress(checkouts(chosen, folder, config.timeout), len(chosen), "cloning")
    problems = [problem for [problem] in cloned if problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(chosen) - len(problems)} of {len(chosen)} repositories in {folder}")
    return 1 if problems else 0


def chosen_repositories(repositories: Repositories, only: list[str]) -> list[Repository]:
    """The named repositories, or all. Raises BadInput for a name that is not described."""
    for name in only:
        if name.lower() not in repositories:
            known = ", ".join(item.name for item in repositories.values())
            raise BadInput(f"unknown repository {name!r}; described are {known}")
    return [repositories[name.lower()] for name in only] or list(repositories.values())


def checkouts(chosen: list[Repository], folder: Path, timeout: float) -> Iterator[list[str]]:
    """Clones one after the other; yields for each why it could not be had, or an empty text."""
    for repository in chosen:
        try:
            checkout(repository, folder, timeout)
        except NotFetched as error:
            yield [f"{repository.name}: {error}"]
        else:
            yield [""]


def checkout(repository: Repository, folder: Path, timeout: float) -> Path:
    """A repository at its commit, in FOLDER/NAME. What is there already is proven, not fetched again.

    Raises NotFetched. A fetch that was killed goes on where git can, and what stands under the name is
    always whole: it is made under another one.
    """
    place = folder / repository.name
    with one_at_a_time(place) as lock:
        git = Git(timeout, lock.fileno())
        if place.exists():
            prove(place, repository, git)
            return place
        making = folder / f".{repository.name}.making"
        if not (making / ".git").is_dir():
            shutil.rmtree(making, ignore_errors=True)
            git.run(["init", "--quiet", str(making)])
        (making / ".git" / "shallow.lock").unlink(missing_ok=True)  # left by a kill
        (making / ".git" / "index.lock").unlink(missing_ok=True)
        fetch = ["fetch", "--quiet", "--depth", "1", "--no-tags", "--", repository.url, repository.commit]
        git.run(["-C", str(making), *fetch])
        git.run(["-C", str(making), "checkout", "--quiet", "--force", "--detach", repository.commit])
        prove(making, repository, git)
        making.rename(place)
    return place


def prove(place: Path, repository: Repository, git: Git) -> None:
    """Raises NotFetched unless a folder is the repository at its commit, with the committed files unchanged.
    Further files may lie there.
    """
    if not (place / ".git").exists():
        raise NotFetched(f"{place} is there and is no git checkout; remove it, or give another --out")
    found = git.run(["-C", str(place), "rev-parse", "HEAD"]).strip()
    if found != repository.commit:
        raise NotFetched(f"{place} is at {found[:12]} and not at {repository.commit[:12]}; remove it")
    changed = git.run(["-C", str(place), "status", "--porcelain", "--untracked-files=no"])
    if changed.strip():
        raise NotFetched(f"{place} has {len(changed.splitlines())} changed files; remove it")


def _own_environment() -> dict[str, str]:
    """The caller's environment without what points git at another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


if __name__ == "__main__":
    run_script(CheckoutConfig, main)
