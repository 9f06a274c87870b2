"""What of the host an interpreter needs in order to start somewhere else."""

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mlbench_data.bad_input import BadInput

_QUESTION = """
import json, sys, sysconfig
prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
print(json.dumps(prefixes + [p for n, p in sysconfig.get_paths().items() if n not in ("scripts", "data")]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter: the folders it lives in, and symbolic links outside of them that lead to it."""

    executable: Path
    folders: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...]


def find_on_host(name: str | None, image: str | None) -> Path | None:
    """`find_python` of a sandbox without images: a path or a name on PATH, by default this interpreter."""
    if image is not None:
        raise BadInput(f"image {image}: only containers have images; expected --sandbox docker or another")
    found = shutil.which(Path(name or sys.executable).expanduser())
    return Path(found).absolute() if found else None


@functools.cache
def examine(python: Path) -> Interpreter:
    """Asks an interpreter where it and its packages live. Raises BadInput if it does not answer."""
    executable = Path(os.path.abspath(python))  # not resolve(): a virtual environment is its symbolic link
    command = [str(executable), "-I", "-c", _QUESTION]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BadInput(
            f"{python}: not a working Python interpreter ({error}); give one with --python"
        ) from error
    named = sorted({Path(folder) for folder in answer if Path(folder).is_dir()})
    folders = tuple(folder for folder in named if not _inside_any(folder.parent, named))
    links = tuple((link, target) for link, target in _links(executable) if not _is_there(link, folders))
    return Interpreter(executable, folders, links)


def _inside_any(path: Path, folders: tuple[Path, ...] | list[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _is_there(link: Path, folders: tuple[Path, ...]) -> bool:
    return _inside_any(link, folders) or any(folder.is_relative_to(link) for folder in folders)


def _links(path: Path) -> list[tuple[Path, str]]:
    """The symbolic links, of folders too, that are followed from `path` to the file it means."""
    found = []
    while link := next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None):
        target = os.readlink(link)
        found.append((link, target))
        path = Path(os.path.normpath(link.parent / target / path.relative_to(link)))
    return found
