"""What the programs of each repository need: an interpreter, variables, preparation, and time.

A file of environments is YAML, one entry for each repository that needs something else than the options say:

    dgl:
      python: /opt/conda/envs/dgl_DS/bin/python   # what `python` means; a conda or virtual environment's own
      variables: {DGLBACKEND: pytorch}
      prefix: source setup.sh                     # bash, run in the row's folder before the row's own prefix
      timeout: 600                                # seconds for one candidate
"""

import shutil
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_yaml


@dataclass(frozen=True)
class Environment:
    """One repository's. `python` is a path or a name on PATH, `timeout` in seconds; None is the default."""

    python: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    timeout: float | None = None

    def interpreter(self, default: Path) -> Path | None:
        """The interpreter's absolute path; None if there is no such program."""
        if self.python is None:
            return default
        found = shutil.which(Path(self.python).expanduser())
        return Path(found).absolute() if found else None


DEFAULT = Environment()


def read_environments(path: str | Path | None) -> dict[str, Environment]:
    """The environments of a file by repository names in lower case; none without a file. Raises BadInput."""
    if path is None:
        return {}
    values = read_yaml(path, "a description of environments")
    if not isinstance(values, dict) or not values:
        raise BadInput(f"{path}: no environments; expected REPOSITORY: {{python, variables, …}}, …")
    return {str(name).lower(): _environment(item, f"{path}: {name}") for name, item in values.items()}


def _environment(values: Any, where: str) -> Environment:
    known = {item.name for item in fields(Environment)}
    if not isinstance(values, dict) or not values.keys() <= known:
        raise BadInput(f"{where}: expected some of {', '.join(sorted(known))}; no others")
    python, prefix = values.get("python"), values.get("prefix", "")
    variables, timeout = values.get("variables", {}), values.get("timeout")
    if not isinstance(variables, dict) or not all(
        isinstance(name, str) and "=" not in name and isinstance(value, str)
        for name, value in variables.items()
    ):
        raise BadInput(f"{where}: variables is {variables!r}; expected NAME: TEXT, …, numbers in quotes")
    if not isinstance(prefix, str) or not (python is None or isinstance(python, str)):
        raise BadInput(f"{where}: python and prefix are text")
    if timeout is not None and (not isinstance(timeout, int | float) or not 0 < timeout < float("inf")):
        raise BadInput(f"{where}: timeout is {timeout!r}; expected seconds, more than 0")
    return Environment(python, variables, prefix, timeout)
