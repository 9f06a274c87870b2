"""The candidates file: appended and flushed as rows are done, continued after a stop, never mixed.

One line a row, `{"github_id", "id", "output", "raw", "finish", "tokens"}`, or with an `error` and no output
if it could not be sampled; beside it NAME.manifest.json, which says how the candidates were made.
"""

import json
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from infer.answers import code_in
from infer.engines.interface import Answer, Usage
from mlbench_data.bad_input import BadInput
from mlbench_data.files import claim, read_json, replacing, write_json
from mlbench_data.rows import RowKey

SECONDS_BETWEEN_MANIFESTS = 10.0
_COST = {
    *("seconds", "prompt_tokens", "cached_prompt_tokens", "computed_prompt_tokens"),
    "generated_tokens",
}


class CandidatesFile:
    """Candidates of one model, prompt and sampling, whose `identity` the manifest holds.

    Memory holds where each row's line begins, not the lines. `finished` says that an earlier run had sampled
    all rows and put them into order. `failed` are rows that could not be sampled, and why; they are sampled
    again when the file is continued.
    """

    def __init__(self, path: str | Path, identity: dict[str, Any]) -> None:
        """Opens or starts the file, dropping a torn last line. Raises BadInput if it holds another run's."""
        self.path = Path(path)
        if self.path.is_dir():
            raise BadInput(f"{self.path}: is a folder; --out takes a file name such as candidates.jsonl")
        claim(self.path)
        self.manifest_path = manifest_of(self.path)
        self.identity = identity
        self.seconds = 0.0
        self._saved = time.monotonic()
        self.usage = Usage()
        self.done: dict[RowKey, int] = {}
        self.failed: dict[RowKey, str] = {}
        self.finished = False
        self._failed_at: dict[RowKey, int] = {}
        if self.manifest_path.exists() or self.path.exists():
            self._continue()

    def _continue(self) -> None:
        manifest = read_manifest(self.path)
        found = manifest["identity"]
        names = self.identity.keys() | found.keys()
        if differing := sorted(name for name in names if self.identity.get(name) != found.get(name)):
            raise BadInput(
                f"{self.path}: holds candidates made with other {', '.join(differing)}; give another --out"
            )
        self.seconds = manifest["cost"]["seconds"]
        self.finished = manifest.get("finished") is True
        if self.path.exists():
            with open(self.path, "r+b") as file:
                start = 0
                for number, (line, values) in enumerate(whole_lines(file, self.path), 1):
                    if "error" not in values and len(values["output"]) != self.identity["n"]:
                        raise BadInput(
                            f"{self.path}:{number}: {len(values['output'])} candidates where "
                            f"{self.identity['n']} were asked for; remove the line, or give another --out"
                        )
                    self._note(start, values)
                    start += len(line)

    def _note(self, start: int, values: dict[str, Any]) -> None:
        """Remembers a line that begins at byte `start`."""
        key = RowKey(values["github_id"], values["id"])
        if "error" in values:
            self.failed[key], self._failed_at[key] = values["error"], start
            return
        self.failed.pop(key, None)
        self.done[key] = start
        self.usage += Usage(**values["tokens"])

    def check_rows(self, asked: Collection[RowKey]) -> None:
        """Raises BadInput if there is a row that was not asked for."""
        for key in [*self.done, *self.failed]:
            if key not in asked:
                raise BadInput(
                    f"{self.path}: holds row {key.github_id}/{key.id}, which was not asked for; remove its "
                    "line, or give another --out"
                )

    def append(self, answers: list[tuple[RowKey, Answer]]) -> None:
        """Adds rows that are not there yet, and makes sure that they reach the disk."""
        if self.finished or not self.manifest_path.exists():
            self.finished = False
            self._write_manifest({"finished": False})
        try:
            with open(self.path, "ab") as file:
                for key, answer in answers:
                    if key not in self.done:
                        values = _line(key, answer)
                        self._note(file.tell(), values)
                        file.write(_encoded(values))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error  # which file was too large
        if time.monotonic() - self._saved > SECONDS_BETWEEN_MANIFESTS:
            self._write_manifest({"finished": False})

    def finish(self, order: list[RowKey], record: dict[str, Any]) -> None:
        """Puts the lines into the order of the rows, and marks the file as finished if none has failed."""
        starts = {**self._failed_at, **self.done}
        with (
            replacing(self.path) as temporary,
            open(self.path, "rb") as file,
            open(temporary, "wb") as ordered,
        ):
            for key in order:
                file.seek(starts[key])
                ordered.write(file.readline())
            ordered.flush()
            os.fsync(ordered.fileno())
        self._write_manifest({"finished": not self.failed, "failed_rows": len(self.failed), **record})

    @property
    def cost(self) -> dict[str, float]:
        """Seconds of all runs, and the tokens of all rows that are done."""
        usage = self.usage
        return {
            "seconds": round(self.seconds, 1),
            "prompt_tokens": usage.prompt_tokens,
            "cached_prompt_tokens": max(0, usage.prompt_tokens - usage.computed_tokens),
            "computed_prompt_tokens": usage.computed_tokens,
            "generated_tokens": usage.generated_tokens,
        }

    def _write_manifest(self, record: dict[str, Any]) -> None:
        now = time.monotonic()
        self.seconds, self._saved = self.seconds + now - self._saved, now
        benchmark = {"benchmark_sha256": self.identity["benchmark_sha256"]}
        write_json(self.manifest_path, {**benchmark, "identity": self.identity, "cost": self.cost, **record})


def manifest_of(path: Path) -> Path:
    """The manifest that lies beside a candidates file."""
    return path.with_name(f"{path.stem}.manifest.json")


def saved_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a candidates file that a user named. Raises BadInput."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; expected a candidates file")
    return read_manifest(path)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the candidates file `path`. Raises BadInput."""
    beside = manifest_of(path)
    manifest = read_json(beside, "the manifest that infer/generate.py writes beside its candidates")
    values = manifest if isinstance(manifest, dict) else {}
    identity, cost = values.get("identity"), values.get("cost")
    if (
        not isinstance(identity, dict)
        or not isinstance(cost, dict)
        or cost.keys() != _COST
        or not all(type(number) in (int, float) and 0 <= number < 1e15 for number in cost.values())
    ):
        raise BadInput(f"{beside}: not the manifest of a candidates file")
    return manifest


def whole_lines(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line and its values; a torn last line is cut off a file that can be written to.

    Raises BadInput naming a damaged line.
    """
    start, number = file.tell(), 0
    while line := file.readline():
        number += 1
        if not line.endswith(b"\n"):
            if file.writable():
                file.truncate(start)
            return
        yield line, _decoded(line, f"{path}:{number}")
        start += len(line)


def _decoded(line: bytes, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
        numbers = [values["github_id"], values["id"]]
        texts = [values["output"], values["raw"], values["finish"]]
        if "error" in values:
            texts.append([values["error"]])
        else:
            numbers += asdict(Usage(**values["tokens"])).values()
        of_a_kind = all(type(item) is int for item in numbers) and all(
            isinstance(given, list) and all(isinstance(text, str) for text in given) for given in texts
        )
        if not of_a_kind or len({len(given) for given in texts[:3]}) != 1:
            raise ValueError("whole numbers, and as many texts of each kind")
        "".join(text for given in texts for text in given).encode()  # no halves of surrogate pairs
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"{where}: damaged line; expected a candidates file as infer/generate.py writes it"
        ) from error
    return values


def _encoded(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _line(key: RowKey, answer: Answer) -> dict[str, Any]:
    values: dict[str, Any] = {
        "github_id": key.github_id,
        "id": key.id,
        "output": [code_in(item.text) for item in answer.completions],
        "raw": [item.text for item in answer.completions],
        "finish": [item.finish for item in answer.completions],
    }
    if answer.error is not None:
        return {**values, "error": answer.error}
    usage = answer.usage
    tokens = {
        "prompt_tokens": usage.prompt_tokens,
        "computed_tokens": usage.computed_tokens,
        "generated_tokens": usage.generated_tokens,
    }
    return {**values, "tokens": tokens}
