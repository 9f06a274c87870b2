"""What the programs of each repository need: an interpreter, variables, preparation, and time.

A file of environments is YAML, one entry for each repository that needs something else than the options say:

    dgl:
      python: /opt/conda/envs/dgl_DS/bin/python   # what `python` means; a conda or virtual environment's own
      variables: {DGLBACKEND: pytorch}
      prefix: source setup.sh                     # bash, run in the row's folder before the row's own prefix
      timeout: 600                                # seconds for one candidate
      image: dgl/dgl-gpu:0.9                      # containers only: made from this image; python is its own
      devices: [/dev/nvidia0, /dev/nvidiactl]     # device files that programs may use
"""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import is_text, read_yaml


@dataclass(frozen=True)
class Environment:
    """One repository's. `python` is a path or a name on PATH, `timeout` in seconds; None is the default.

    `image` is what containers are made from, and `devices` are device files that programs may use.
    """

    python: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    timeout: float | None = None
    image: str | None = None
    devices: tuple[str, ...] = ()


DEFAULT = Environment()
MOST_SECONDS = 365 * 24 * 3600.0
_NAME = re.compile(r"[A-Za-z_]\w*")


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
    image, devices = values.get("image"), values.get("devices", [])
    if not isinstance(variables, dict) or not all(
        isinstance(name, str) and _NAME.fullmatch(name) and _is_plain(value)
        for name, value in variables.items()
    ):
        raise BadInput(f"{where}: variables is {variables!r}; expected NAME: TEXT, …, numbers in quotes")
    if "PATH" in variables:
        raise BadInput(f"{where}: PATH is the sandbox's own; name the interpreter with python")
    if not _is_plain(prefix) or not (python is None or _is_plain(python)):
        raise BadInput(f"{where}: python and prefix are text")
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < MOST_SECONDS):
        raise BadInput(f"{where}: timeout is {timeout!r}; expected seconds, more than 0")
    if image is not None and not (_is_plain(image) and image):
        raise BadInput(f"{where}: image is {image!r}; expected the name of an image")
    if not isinstance(devices, list) or not all(
        _is_plain(device) and device.startswith("/dev/") and ".." not in device for device in devices
    ):
        raise BadInput(f"{where}: devices is {devices!r}; expected a list such as [/dev/nvidia0]")
    return Environment(python, variables, prefix, timeout, image, tuple(devices))


def _is_plain(value: Any) -> bool:
    """Whether a value is text that a program can be given."""
    return isinstance(value, str) and "\0" not in value and is_text(value)
