"""The candidates file: appended and flushed as rows are done, continued after a stop, never mixed.

One line a row, `{"github_id", "id", "output", "raw", "finish"}`; beside it NAME.manifest.json, which says how
the candidates were made.
"""

import json
import os
from pathlib import Path
from typing import Any

from infer.answers import code_in
from infer.engines.interface import Completion
from mlbench_data.bad_input import BadInput
from mlbench_data.files import claim, read_json, replacing, write_json
from mlbench_data.rows import RowKey


class CandidatesFile:
    """Candidates of one model, prompt and sampling, whose `identity` the manifest holds."""

    def __init__(self, path: str | Path, identity: dict[str, Any]) -> None:
        """Opens or starts the file, dropping a torn last line. Raises BadInput if it holds another run's."""
        self.path = Path(path)
        if self.path.is_dir():
            raise BadInput(f"{self.path}: is a folder; --out takes a file name such as candidates.jsonl")
        claim(self.path)
        self.manifest_path = self.path.with_name(f"{self.path.stem}.manifest.json")
        self.identity = identity
        self.cost = {"seconds": 0.0, "prompt_tokens": 0, "generated_tokens": 0}
        self.done: dict[RowKey, str] = {}
        if self.manifest_path.exists() or self.path.exists():
            self._continue()
        else:
            self._write_manifest({"finished": False})

    def _continue(self) -> None:
        manifest = read_json(self.manifest_path, "the manifest of this candidates file; give another --out")
        found = manifest.get("identity", {})
        names = self.identity.keys() | found.keys()
        if differing := sorted(name for name in names if self.identity.get(name) != found.get(name)):
            raise BadInput(
                f"{self.path}: holds candidates made with other {', '.join(differing)}; give another --out"
            )
        self.cost = manifest["cost"]
        if self.path.exists():
            self._read_whole_lines()

    def _read_whole_lines(self) -> None:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(self.path, len(whole))
        for number, line in enumerate(whole.decode().split("\n")[:-1], start=1):
            try:
                values = json.loads(line)
                self.done[RowKey(values["github_id"], values["id"])] = line
            except (ValueError, TypeError, KeyError) as error:
                raise BadInput(f"{self.path}:{number}: damaged line; give another --out") from error

    def append(self, rows: dict[RowKey, list[Completion]], cost: dict[str, float]) -> None:
        """Adds rows that are not there yet, and makes sure that they reach the disk."""
        new = {key: _line(key, completions) for key, completions in rows.items() if key not in self.done}
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in new.values())
            file.flush()
            os.fsync(file.fileno())
        self.done |= new
        self.cost = {name: round(self.cost[name] + value, 3) for name, value in cost.items()}
        self._write_manifest({"finished": False})

    def finish(self, order: list[RowKey], record: dict[str, Any]) -> None:
        """Puts the lines into the order of the rows and marks the file as finished."""
        with replacing(self.path) as temporary:
            temporary.write_text("".join(f"{self.done[key]}\n" for key in order), encoding="utf-8")
        self._write_manifest({"finished": True, **record})

    def _write_manifest(self, record: dict[str, Any]) -> None:
        benchmark = {"benchmark_sha256": self.identity["benchmark_sha256"]}
        write_json(self.manifest_path, {**benchmark, "identity": self.identity, "cost": self.cost, **record})


def _line(key: RowKey, completions: list[Completion]) -> str:
    values = {
        "github_id": key.github_id,
        "id": key.id,
        "output": [code_in(item.text) for item in completions],
        "raw": [item.text for item in completions],
        "finish": [item.finish for item in completions],
    }
    return json.dumps(values, ensure_ascii=False)
