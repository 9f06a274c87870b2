"""Shows one row's prompt and its candidates side by side.

python infer/show.py runs/candidates/smollm2-135m-task3-full.jsonl --row 101/1
"""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from infer.candidates import manifest_of, read_manifest, whole_lines
from infer.config import GenerateConfig
from infer.generate import ask
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse, run_script
from mlbench_data.rows import RowKey

PROMPT_TAIL = 2000  # characters: the instruction stands at the end


@dataclass(frozen=True)
class ShowConfig:
    """What to show."""

    candidates: list[str] = field(default_factory=list, metadata={"positional": True})
    """The candidates file; also by name alone, without the option."""
    row: str | None = None
    """GITHUB_ID/ID, or ID where no other row has it; the file's first row if not given."""
    raw: bool = False
    """Show the completions as they were sampled, instead of the code in them."""
    whole: bool = False
    """Show the whole prompt instead of its end."""


def main(config: ShowConfig) -> int:
    """Shows one row's prompt and its candidates side by side."""
    if len(config.candidates) != 1:
        raise BadInput("which file? python infer/show.py CANDIDATES.jsonl --row GITHUB_ID/ID")
    path = Path(config.candidates[0])
    values = line_of(path, config.row)
    key = RowKey(values["github_id"], values["id"])
    prompt, answer = prompt_of(path, key)
    shown = prompt if config.whole else f"…{prompt[-PROMPT_TAIL:]}" if len(prompt) > PROMPT_TAIL else prompt
    left = Group(Panel(Text(shown), title="prompt"), Panel(Text(answer), title="the row's own answer"))
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1)
    table.add_column(ratio=1)
    table.add_row(left, Group(*_panels(values, "raw" if config.raw else "output")))
    console = Console()
    console.print(f"row {key.github_id}/{key.id} of {path}", highlight=False)
    console.print(table)
    return 0


def line_of(path: Path, row: str | None) -> dict[str, Any]:
    """The file's line of a row. Raises BadInput."""
    found: list[dict[str, Any]] = []
    first = None
    try:
        with open(path, "rb") as file:
            for _line, values in whole_lines(file, path):
                names = (f"{values['github_id']}/{values['id']}", str(values["id"]))
                first = first or names[0]
                if row is None:
                    return values
                if row in names:
                    found.append(values)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; expected a candidates file") from error
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadInput(f"{path}: no row {row!r}; its first is {first}" if first else f"{path}: holds no row")
    several = ", ".join(f"{values['github_id']}/{values['id']}" for values in found[:4])
    raise BadInput(f"{path}: {len(found)} rows have the id {row}: say which, as {several}")


def prompt_of(path: Path, key: RowKey) -> tuple[str, str]:
    """A row's prompt as the model read it, made again as the manifest says, and the row's own answer."""
    manifest = read_manifest(path)
    if "config" not in manifest:
        raise BadInput(f"{path}: not finished; run its command again")
    config = _config_of(manifest, path)
    asked = ask(replace(config, rows=[f"{key.github_id}/{key.id}"], limit=None, shard="0/1"))
    if asked.builder.template.sha256 != manifest["identity"].get("prompt_template"):
        raise BadInput(
            f"{path}: {config.prompt_template or 'the prompt template'} has changed since; undo that"
        )
    [prompt] = asked.prompts
    return asked.builder.tokenizer.decode(prompt.token_ids), prompt.row.output


def _config_of(manifest: dict[str, Any], path: Path) -> GenerateConfig:
    """The configuration that a manifest holds. Raises BadInput if it is damaged."""
    found, identity = manifest["config"], manifest["identity"]
    same = ("model", "task", "split", "n", "max_new_tokens")
    if not isinstance(found, dict) or any(found.get(name) != identity.get(name) for name in same):
        raise BadInput(f"{manifest_of(path)}: its config is not that of its candidates")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(found, file)
        file.flush()
        return parse(GenerateConfig, "", ["--config", file.name])


def _panels(values: dict[str, Any], name: str) -> list[Panel]:
    if "error" in values:
        return [Panel(Text(values["error"]), title="not sampled", border_style="red")]
    pairs = zip(values[name], values["finish"], strict=True)
    return [
        Panel(Text(text), title=f"candidate {number}, {finish}")
        for number, (text, finish) in enumerate(pairs, start=1)
    ]


if __name__ == "__main__":
    run_script(ShowConfig, main)
