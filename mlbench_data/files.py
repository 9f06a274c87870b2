"""Reading and writing files so that nothing is ever half-written."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import yaml

from mlbench_data.bad_input import BadInput

PROJECT_ROOT = Path(__file__).resolve().parent.parent


def cache_folder() -> Path:
    """Where converted models and the built MiniBench are kept: $MLBENCH_CACHE, else `.cache` here."""
    return Path(os.environ.get("MLBENCH_CACHE") or PROJECT_ROOT / ".cache")


def is_text(text: str) -> bool:
    """Whether a text can be written to a file: JSON, YAML and command lines can hold halves of letters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_text(path: str | Path, what: str) -> str:
    """The text of a file that a user named. `what` says what it should have been. Raises BadInput."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start}); expected {what}") from error
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}; expected {what}") from error


def read_json(path: str | Path, what: str) -> Any:
    """A JSON file that a user named. Raises BadInput."""
    try:
        return json.loads(read_text(path, what))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not JSON ({error.msg}); expected {what}") from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, endless brackets
        raise BadInput(f"{path}: not sensible JSON ({error}); expected {what}") from error


def read_yaml(path: str | Path, what: str, *, as_text: bool = False) -> Any:
    """A YAML file that a user named; `as_text` leaves values as they are written, where 4:00:00 would become
    14400 and yes true. Raises BadInput.
    """
    try:
        return yaml.load(read_text(path, what), yaml.BaseLoader if as_text else yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{path}:{line}: not YAML ({error.problem}); expected {what}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a control character, a date that is none
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path}: not YAML ({reason}); expected {what}") from error


def read_jsonl(path: str | Path, what: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for each line that is not blank. Raises BadInput naming file and line."""
    for number, line in enumerate(read_text(path, what).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}:{number}: broken JSON ({error.msg}); expected {what}") from error
        except (ValueError, RecursionError) as error:  # an integer of thousands of digits, endless brackets
            raise BadInput(f"{path}:{number}: not sensible JSON; expected {what}") from error
        if not isinstance(value, dict):
            raise BadInput(f"{path}:{number}: not a JSON object; expected {what}")
        yield number, value


def make_folder(path: str | Path) -> Path:
    """Creates an output folder and proves that it can be written to. Raises BadInput."""
    folder = Path(path)
    probe = folder / f".writable-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(f"{folder}: cannot write there ({error.strerror}); give a writable folder") from error
    return folder


def output_file(path: str | Path) -> Path:
    """Where a file is to be written: links resolved, its folder made. Raises BadInput for a folder, a device
    or what else is no plain file, and if nothing can be written there.
    """
    try:
        found = Path(path).resolve()
    except (OSError, RuntimeError) as error:  # a loop of symbolic links
        raise BadInput(f"{path}: not a place for a file ({error})") from error
    if not str(path) or (found.exists() and not found.is_file()):
        raise BadInput(f"{str(path)!r}: not a plain file; give the name of a file to write")
    make_folder(found.parent)
    return found


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path`, renamed onto it once the block has ended without an error."""
    path = output_file(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None:  # writing to an open file says none
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # a name that is too long was never there
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path, what: str, is_one: Callable[[Path], bool]) -> Iterator[Path]:
    """A new folder beside `path`, renamed onto it once the block has ended without an error: what stands
    under the name is whole or absent.

    An earlier folder is replaced if it is empty or `is_one` says that it is `what`. Raises BadInput for
    anything else, and if nothing can be written there.
    """
    out = Path(path).resolve()
    temporary = out.with_name(
        f".{out.name}.{secrets.token_hex(4)}"
    )  # no process number: containers share them
    earlier = temporary.with_name(f"{temporary.name}.earlier")
    try:
        if out.exists() and not out.is_dir():
            raise BadInput(f"{out}: not a folder; give another --out")
        if out.exists() and any(out.iterdir()) and not is_one(out):
            raise BadInput(f"{out}: not empty and not {what}; give another --out")
        temporary.mkdir(parents=True)
        yield temporary
        if out.exists():
            out.rename(earlier)  # deleting it under its own name could be stopped halfway
        temporary.rename(out)
    except OSError as error:
        raise BadInput(f"{out}: cannot write there ({error.strerror}); give a writable --out") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(earlier, ignore_errors=True)


@contextmanager
def one_at_a_time(path: str | Path) -> Iterator[TextIO]:
    """Other processes that want to make `path` wait until this block has ended, or its process was killed.
    A child that is given the lock's file holds it too.

    Raises BadInput if nothing can be written beside `path`.
    """
    path = Path(path)
    with open(make_folder(path.parent) / f".{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


_CLAIMS: dict[Path, TextIO] = {}
CLAIM_SECONDS = 10.0  # how long what a killed process has left behind may still be ending


def claim(path: str | Path) -> None:
    """Makes an output this process's own until it ends, however it ends: two that write one file or folder
    would spoil both. Raises BadInput if another process has it.
    """
    try:
        path = Path(path).resolve()
        if path in _CLAIMS:
            return
        lock = open(make_folder(path.parent) / f".{path.name}.lock", "w")  # noqa: SIM115 - held until the end
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        raise BadInput(f"{path}: not a place for a file ({error}); give another name") from error
    patience = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > patience:
                lock.close()
                raise BadInput(f"{path}: another process is writing it; give another name, or wait") from None
            time.sleep(0.2)
    _CLAIMS[path] = lock


def write_text(path: str | Path, text: str) -> None:
    """Writes a whole file or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Writes a whole JSON file or nothing; keys keep their order."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sha256_of(value: Any) -> str:
    """The hash of any JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def sha256_of_file(path: str | Path) -> str:
    """The hash of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_HASHES: dict[tuple[str, int, int], str] = {}


def cached_sha256_of_file(path: Path) -> str:
    """The same, read once as long as size and time of change stay: for weights."""
    state = path.stat()
    key = (str(path), state.st_mtime_ns, state.st_size)
    if key not in _HASHES:
        _HASHES[key] = sha256_of_file(path)
    return _HASHES[key]
