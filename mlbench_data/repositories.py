"""The repositories that rows are about: the paper's 18, and those of a user's own file."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_yaml

PAPERS_REPOSITORIES = Path(__file__).resolve().parent / "repositories.yaml"

Role = Literal["test", "ood"]


@dataclass(frozen=True)
class Repository:
    """One repository; the keys are explained at the head of repositories.yaml."""

    name: str
    url: str
    commit: str
    domain: str
    role: Role
    github_id: int | None = None
    readme: str = "README.md"
    test_readme: str | None = None
    environment: str | None = None


Repositories = dict[str, Repository]
"""Repositories by their names in lower case: rows write `lavis`, the checkout is called `LAVIS`."""


def read_repositories(extra: str | Path | None = None) -> Repositories:
    """The paper's repositories, and those of a file of one's own, which win. Raises BadInput."""
    found = _read(PAPERS_REPOSITORIES)
    return found | _read(Path(extra)) if extra is not None else found


def _read(path: Path) -> Repositories:
    values = read_yaml(path, "a description of repositories")
    if not isinstance(values, dict) or not values:
        raise BadInput(f"{path}: no repositories; expected NAME: {{url, commit, domain, role}}, …")
    return {str(name).lower(): _repository(str(name), item, path) for name, item in values.items()}


def _repository(name: str, values: Any, path: Path) -> Repository:
    where = f"{path}: {name}"
    known = {item.name for item in fields(Repository)} - {"name"}
    needed = {"url", "commit", "domain", "role"}
    if not isinstance(values, dict) or not needed <= values.keys() or not values.keys() <= known:
        raise BadInput(f"{where}: expected {', '.join(sorted(needed))}, and perhaps "
                       f"{', '.join(sorted(known - needed))}; no others")  # fmt: skip
    repository = Repository(name=name, **values)
    for key in known - {"github_id"}:
        value = getattr(repository, key)
        if not isinstance(value, str) and not (value is None and key not in needed):
            raise BadInput(f"{where}: {key} is {value!r}; expected text")
    if repository.url.startswith("-") or not repository.url.strip():
        raise BadInput(f"{where}: url is {repository.url!r}; expected an address such as https://…")
    if not re.fullmatch(r"[0-9a-f]{40}", repository.commit):
        raise BadInput(f"{where}: commit is {repository.commit!r}; expected 40 hexadecimal digits, in quotes")
    if not re.fullmatch(r"[\w.-]+", name) or name in (".", ".."):
        raise BadInput(f"{where}: not a name of a repository; expected letters, digits, '.', '_' and '-'")
    if repository.role not in get_args(Role):
        raise BadInput(f"{where}: role is {repository.role!r}; expected test or ood")
    for page in (repository.readme, repository.test_readme):
        if page is not None and (Path(page).is_absolute() or ".." in Path(page).parts):
            raise BadInput(f"{where}: README page {page!r} is not inside the repository")
    return repository
