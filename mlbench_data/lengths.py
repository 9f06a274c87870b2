"""Table 8: how many tokens each repository's README has, the paper's figure beside ours.

python mlbench_data/lengths.py --readmes checkouts
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import output_file, write_json
from mlbench_data.papers_tables import papers_table, relative_error
from mlbench_data.readmes import page_of, read_readme
from mlbench_data.repositories import Repositories, read_repositories
from mlbench_data.tokens import Counter, counters

Lengths = dict[str, dict[str, int]]
"""Repository → column (`gpt35.readme.train`, …) → tokens, without a begin token."""


@dataclass(frozen=True)
class LengthsConfig:
    """Where the READMEs and the tokenizers are."""

    readmes: str
    """Folder of checkouts or README pages as REPOSITORY/README.md."""
    tokenizers: str | None = None
    """Folder with llama.model and tiktoken's cache; fetched by their libraries if not given."""
    repositories: str | None = None
    """YAML file that describes repositories of your own."""
    out: str | None = None
    """A JSON file for ours: {"vid2vid": {"gpt35.readme.train": 3569, …}, …}."""


def main(config: LengthsConfig) -> int:
    """Table 8: how many tokens each repository's README has, the paper's figure beside ours."""
    if config.out is not None:
        output_file(config.out)
    repositories = read_repositories(config.repositories)
    found = measure(Path(config.readmes), repositories, counters(config.tokenizers))
    papers = papers_table("table8")
    for line in table(found, papers):
        print(line)
    missing = [item.name for item in repositories.values() if item.name not in found]
    if missing:
        print(f"not below {config.readmes}: {', '.join(missing)}")
    if config.out is not None:
        write_json(config.out, found)
    return 0


def measure(folder: Path, repositories: Repositories, count: dict[str, Counter]) -> Lengths:
    """The lengths of every described repository whose page is below `folder`. Raises BadInput.

    The paper's Test column seems to count some pages as they are, and others as they stand in a JSON file,
    quoted and escaped: both are measured.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; --readmes takes a folder laid out as REPOSITORY/README.md")
    checkouts = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    found: Lengths = {}
    for name, repository in repositories.items():
        checkout = checkouts.get(name)
        page = page_of(repository, checkout, False) if checkout else None
        if checkout is None or page is None:
            continue
        text = read_readme(checkout, page, "rendered")
        lengths = {f"{model}.readme.train": count[model](text) for model in count}
        test_page = page_of(repository, checkout, True)
        if repository.role == "test" and test_page is not None:
            text = read_readme(checkout, test_page, "rendered")
            escaped = json.dumps(text, ensure_ascii=False)
            for model in count:
                lengths[f"{model}.readme.test"] = count[model](text)
                lengths[f"{model}.readme.test.escaped"] = count[model](escaped)
        found[repository.name] = lengths
    if not found:
        names = ", ".join(item.name for item in repositories.values())
        raise BadInput(f"{folder}: holds no README of {names} as REPOSITORY/README.md")
    return found


def table(found: Lengths, papers: Lengths) -> Iterator[str]:
    """A line a repository: for each vocabulary the paper's tokens, ours, and the relative error."""
    for model in ("gpt35", "codellama"):
        yield f"{model:26}{'train':^26}{'test':^26}{'test, as JSON':^18}"
        yield (
            f"{'README, tokens':26}"
            + f"{'paper':>8}{'ours':>8}{'error':>9} " * 2
            + f"{'ours':>8}{'error':>9}"
        )
        for name, lengths in found.items():
            cells = []
            for column in ("train", "test", "test.escaped"):
                ours = lengths.get(f"{model}.readme.{column}")
                theirs = papers.get(name, {}).get(f"{model}.readme.{column.removesuffix('.escaped')}")
                cells += [
                    "" if "." in column else f"{_shown(theirs):>8}",
                    f"{_shown(ours):>8}{_error(ours, theirs):>9} ",
                ]
            yield f"{name:26}" + "".join(cells).rstrip()
        yield ""


def _shown(tokens: int | None) -> str:
    return "–" if tokens is None else str(tokens)


def _error(ours: int | None, papers: int | None) -> str:
    error = None if ours is None else relative_error(ours, papers)
    return "–" if error is None else f"{100 * error:+.2f}%"


if __name__ == "__main__":
    run_script(LengthsConfig, main)
