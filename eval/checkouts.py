"""The folders that candidates run in a copy of: which repository, at which commit, with what in it."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from mlbench_data.bad_input import BadInput
from mlbench_data.checkout import Git, NotFetched, prove
from mlbench_data.repositories import Repository, read_repositories
from mlbench_data.rows import Row

SECONDS_FOR_GIT = 300.0
_NOT_CONTENT = {".git", "__pycache__"}


@dataclass(frozen=True)
class Checkout:
    """One repository's folder. `content` is the hash of its files, `commit` None if it is no git checkout;
    `proven` says that it is the pinned commit with the committed files unchanged.
    """

    folder: Path
    content: str
    commit: str | None
    proven: bool


def find_checkouts(repositories: Path, rows: list[Row], *, any_commit: bool) -> dict[str, Checkout | None]:
    """The checkout of each row's repository by its name, None where there is none.

    Raises BadInput for one of the paper's repositories that is not as its pinned commit has it, unless any
    commit will do.
    """
    described = read_repositories()
    addresses = {row.repository: row.github for row in rows}
    found: dict[str, Checkout | None] = {}
    for name, address in addresses.items():
        folder = _folder(repositories, name)
        pinned = described.get(name.lower())
        is_papers = pinned is not None and _same_address(pinned.url, address)
        found[name] = _checkout(folder, pinned if is_papers else None, any_commit) if folder else None
    return found


def _folder(repositories: Path, name: str) -> Path | None:
    """DIR/NAME, or what differs from it by letters' case only: rows write `lavis`, others clone `LAVIS`."""
    if (repositories / name).is_dir():
        return repositories / name
    alike = [path for path in repositories.iterdir() if path.name.lower() == name.lower() and path.is_dir()]
    return alike[0] if len(alike) == 1 else None


def _same_address(one: str, other: str) -> bool:
    plain = [text.lower().rstrip("/").removesuffix(".git") for text in (one, other)]
    return plain[0] == plain[1]


def _checkout(folder: Path, pinned: Repository | None, any_commit: bool) -> Checkout:
    git = Git(SECONDS_FOR_GIT)
    if pinned is not None and not any_commit:
        try:
            prove(folder, pinned, git)
        except NotFetched as error:
            raise BadInput(
                f"{error}; or run in it as it is with --any_commit, and compare with nobody else's scores"
            ) from error
    try:
        commit = git.run(["-C", str(folder), "rev-parse", "HEAD"]).strip() if _is_git(folder) else None
    except NotFetched:  # no commit yet, or somebody else's folder
        commit = None
    return Checkout(folder, content_hash(folder), commit, pinned is not None and not any_commit)


def _is_git(folder: Path) -> bool:
    return (folder / ".git").exists()


def content_hash(folder: Path) -> str:
    """The hash of a folder's files: names, contents, executable bits and link targets; without .git."""
    digest = hashlib.sha256()
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _NOT_CONTENT)
        for name in sorted(files + [item for item in folders if os.path.islink(os.path.join(parent, item))]):
            path = Path(parent, name)
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0")
            if path.is_symlink():
                digest.update(b"link " + os.fsencode(os.readlink(path)) + b"\0")
            elif path.is_file():
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                digest.update(f"{content} {os.access(path, os.X_OK)}\0".encode())
    return digest.hexdigest()
