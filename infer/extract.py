"""Takes the code out of the completions of a candidates file again, after the rules have changed.

python infer/extract.py runs/candidates/old.jsonl --out runs/candidates/new.jsonl
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from infer.answers import code_in
from infer.candidates import manifest_of, read_manifest, saved_manifest, whole_lines
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script, versions
from mlbench_data.files import claim, replacing, write_json


@dataclass(frozen=True)
class ExtractConfig:
    """Which file to read, and where to write."""

    candidates: list[str] = field(default_factory=list, metadata={"positional": True})
    """The candidates file; also by name alone, without the option."""
    out: str | None = None
    """The candidates file to write."""


def main(config: ExtractConfig) -> int:
    """Takes the code out of the completions of a candidates file again, after the rules have changed."""
    if len(config.candidates) != 1 or config.out is None:
        raise BadInput("which file, and where to? python infer/extract.py OLD.jsonl --out NEW.jsonl")
    path, out = Path(config.candidates[0]), Path(config.out)
    _check_out(out, path)
    claim(out)
    manifest = {**saved_manifest(path), "extracted_from": str(path), "versions": versions()}
    rows = changed = 0
    with (
        replacing(out) as temporary,
        open(temporary, "w", encoding="utf-8") as again,
        open(path, "rb") as file,
    ):
        for _line, values in whole_lines(file, path):
            output = [code_in(raw) for raw in values["raw"]]
            rows, changed = rows + 1, changed + (output != values["output"])
            again.write(json.dumps({**values, "output": output}, ensure_ascii=False) + "\n")
        if manifest.get("finished") is True and rows != manifest.get("rows"):
            raise BadInput(
                f"{path}: holds {rows} rows, its manifest says {manifest.get('rows')}; run its command again"
            )
        again.flush()
        write_json(manifest_of(out), {**manifest, "finished": False})  # until the file is under its name
    write_json(manifest_of(out), manifest)
    print(f"{rows} rows in {out}, {changed} of them with other code than in {path}")
    return 0


def _check_out(out: Path, path: Path) -> None:
    """Raises BadInput if the output holds anything but an earlier extraction from the same file."""
    if not (out.exists() or manifest_of(out).exists()):
        return
    there = manifest_of(out) if manifest_of(out).exists() else out
    if there == out or read_manifest(out).get("extracted_from") != str(path):
        raise BadInput(f"{there}: is there already; give another --out")


if __name__ == "__main__":
    run_script(ExtractConfig, main)
