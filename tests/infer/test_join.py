"""Joining shards: all of one run, each once, or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from infer.candidates import CandidatesFile, manifest_of
from infer.engines.interface import Answer, Completion, Usage
from infer.join import join
from mlbench_data.bad_input import BadInput
from mlbench_data.prompts import sha256_of_prompts
from mlbench_data.shards import rows_of_shard
from tests.helpers import read_lines
from tests.infer.asked import request

REQUESTS = [request([7, 8, number], number) for number in range(10)]
RECORD = {"readme_cut": {"rows": 1, "tokens": 5}, "dollars": None, "config": {"shard": "?"}}


def shard(folder: Path, name: str, finished: bool = True, **changes: Any) -> Path:
    """The candidates file of one shard of ten rows, as generate.py leaves it."""
    prompts = [REQUESTS[row.id].prompt for row in rows_of_shard([one.prompt.row for one in REQUESTS], name)]
    sha256 = sha256_of_prompts(prompts)
    identity = {"model": "tiny", "benchmark_sha256": "b", "shard": name, "prompts_sha256": sha256, **changes}
    path = folder / f"{name.replace('/', 'of')}.jsonl"
    file = CandidatesFile(path, identity)
    keys = [prompt.row.key for prompt in prompts]
    for key in keys:
        file.append([(key, Answer(0, [Completion(f"python {key.id}.py", "stop", 3)], Usage(10, 4, 3)))])
    if finished:
        file.finish(keys, {"rows": len(keys), **RECORD})
    return path


def shards(folder: Path, count: int) -> list[Path]:
    return [shard(folder, f"{index}/{count}") for index in range(count)]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_joined_file_is_that_of_a_run_without_shards(count: int, tmp_path: Path) -> None:
    out = tmp_path / "all.jsonl"
    assert join(list(reversed(shards(tmp_path, count))), out) == 10
    assert [line["id"] for line in read_lines(out)] == list(range(10))
    manifest = json.loads((tmp_path / "all.manifest.json").read_text())
    whole = sha256_of_prompts([one.prompt for one in REQUESTS])
    assert manifest["identity"] == {
        "model": "tiny",
        "benchmark_sha256": "b",
        "shard": "0/1",
        "prompts_sha256": whole,
    }
    assert (manifest["finished"], manifest["rows"]) == (True, 10)
    assert manifest["cost"]["computed_prompt_tokens"] == 40
    assert manifest["readme_cut"] == {"rows": count, "tokens": 5 * count}


def test_a_join_that_was_stopped_is_done_again(tmp_path: Path) -> None:
    """The manifest is there first, without `finished`; the rows come under their name all at once."""
    out, parts = tmp_path / "all.jsonl", shards(tmp_path, 2)
    join(parts, out)
    before = out.read_bytes()
    manifest = json.loads((tmp_path / "all.manifest.json").read_text())
    (tmp_path / "all.manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    out.unlink()
    join(parts, out)
    assert out.read_bytes() == before


def refused(paths: list[Path], out: Path, message: str) -> None:
    before = out.read_bytes() if out.is_file() else None
    with pytest.raises(BadInput, match=message):
        join(paths, out)
    assert (out.read_bytes() if out.is_file() else None) == before


def test_gaps_and_mismatches_are_refused(tmp_path: Path) -> None:
    out, parts = tmp_path / "all.jsonl", shards(tmp_path, 4)
    refused(parts[:2] + parts[3:], out, "shards missing: 2/4")
    refused(parts[:2], out, "shards missing: 2/4, 3/4")
    refused([*parts, shard(tmp_path, "0/2")], out, "shards of different numbers")
    refused(parts, parts[0], "is one of the shards")
    other = tmp_path / "other"
    other.mkdir()
    refused([*parts[:3], shard(other, "3/4", model="large")], out, "made with different model")
    refused([*parts, shard(other, "2/4")], out, "shard 2/4, as is")
    assert not out.exists()


def test_a_shard_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    parts = [shard(tmp_path, "0/2"), shard(tmp_path, "1/2", finished=False)]
    refused(parts, tmp_path / "all.jsonl", r"1of2\.jsonl: not finished")


def test_a_shard_that_lost_a_row_after_it_was_finished_is_refused(tmp_path: Path) -> None:
    parts = shards(tmp_path, 2)
    parts[1].write_text("".join(parts[1].read_text().splitlines(keepends=True)[1:]))
    refused(parts, tmp_path / "all.jsonl", r"holds 4 rows, its manifest says 5")


def test_the_file_of_another_run_is_not_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    out = shard(other, "0/1", model="large")
    refused(shards(tmp_path, 2), out, "holds the candidates of another run")
    refused(shards(tmp_path, 3), tmp_path, "is a folder")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost": {"seconds": 1}}, "not the manifest of a candidates file"),
        ({"cost": {"seconds": float("nan")}}, "not the manifest of a candidates file"),
        ({"readme_cut": {"rows": 1}}, "damaged"),
        ({"dollars": "x"}, "damaged"),
        ({"finished": "no"}, "not finished"),
        ({"identity": {"shard": "9" * 5000 + "/3"}}, "expected I/N"),
    ],
)
def test_a_manifest_that_is_damaged_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    parts = shards(tmp_path, 2)
    path = manifest_of(parts[0])
    manifest = json.loads(path.read_text())
    identity = {**manifest["identity"], **changes.get("identity", {})}
    path.write_text(json.dumps({**manifest, **changes, "identity": identity}))
    refused(parts, tmp_path / "all.jsonl", message)
