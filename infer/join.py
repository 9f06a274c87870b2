"""Joins the candidates files of all shards of one run into one file.

python infer/join.py runs/candidates/shard*.jsonl --out runs/candidates/all.jsonl
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infer.candidates import manifest_of, read_manifest, saved_manifest, whole_lines
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script, versions
from mlbench_data.files import claim, replacing, write_json
from mlbench_data.prompts import joined_sha256
from mlbench_data.rows import RowKey
from mlbench_data.shards import shard_of


@dataclass(frozen=True)
class JoinConfig:
    """Which files to join, and where to."""

    candidates: list[str] = field(default_factory=list, metadata={"positional": True})
    """The candidates files of all shards, in any order; also by name alone, without the option."""
    out: str | None = None
    """The candidates file to write."""


def main(config: JoinConfig) -> int:
    """Joins the candidates files of all shards of one run into one file."""
    if not config.candidates or config.out is None:
        raise BadInput("which files, and where to? python infer/join.py SHARD.jsonl … --out FILE.jsonl")
    rows = join([Path(name) for name in config.candidates], Path(config.out))
    print(f"{rows} rows of {len(config.candidates)} shards in {config.out}")
    return 0


def join(paths: list[Path], out: Path, shard: str = "0/1") -> int:
    """Writes the rows of all shards, in the rows' order, and a manifest as of one run; returns their number.

    `shard` is what they are together. Raises BadInput for gaps, for shards twice, for files of different runs
    or that are not finished, and for an `out` that holds something else.
    """
    manifests = {path: _manifest(path) for path in paths}
    ordered = _in_order(manifests, shard)
    identity = _identity([manifests[path] for path in ordered], paths, shard)
    _check_out(out, paths, identity)
    claim(out)
    record = _record([manifests[path] for path in ordered])
    header = {
        "benchmark_sha256": identity["benchmark_sha256"],
        "identity": identity,
        "cost": record.pop("cost"),
    }
    seen: set[RowKey] = set()
    with replacing(out) as temporary, open(temporary, "wb") as joined:
        for path in ordered:
            count = len(seen)
            joined.writelines(_lines(path, seen))
            if len(seen) - count != manifests[path]["rows"]:
                raise BadInput(
                    f"{path}: holds {len(seen) - count} rows, its manifest says {manifests[path]['rows']}; "
                    "run its command again"
                )
        joined.flush()
        write_json(manifest_of(out), {**header, "finished": False})  # until the file is under its name
    write_json(manifest_of(out), {**header, "finished": True, "failed_rows": 0, **record})
    return len(seen)


def _manifest(path: Path) -> dict[str, Any]:
    """A shard's manifest. Raises BadInput unless its run has finished."""
    manifest = saved_manifest(path)
    if manifest.get("finished") is not True:
        failed = f", {manifest['failed_rows']} rows have failed" if manifest.get("failed_rows") else ""
        raise BadInput(f"{path}: not finished{failed}; run its command again")
    lacking = {"rows", "readme_cut", "config"} - manifest.keys()
    lacking |= {"shard", "prompts_sha256", "benchmark_sha256"} - manifest["identity"].keys()
    if lacking:
        names = ", ".join(sorted(lacking))
        raise BadInput(f"{manifest_of(path)}: no {names}; not what infer/generate.py writes")
    identity, cut = manifest["identity"], manifest["readme_cut"]
    texts = (identity["shard"], identity["prompts_sha256"], identity["benchmark_sha256"])
    if (
        not all(isinstance(text, str) for text in texts)
        or not isinstance(cut, dict)
        or cut.keys() != {"rows", "tokens"}
        or not all(type(number) is int for number in (manifest["rows"], *cut.values()))
        or type(manifest.get("dollars")) not in (int, float, type(None))
        or not isinstance(manifest["config"], dict)
    ):
        raise BadInput(f"{manifest_of(path)}: damaged; not what infer/generate.py writes")
    return manifest


def _in_order(manifests: dict[Path, dict[str, Any]], shard: str) -> list[Path]:
    """The files by their shards. Raises BadInput unless they are `shard` as a whole."""
    index, count = shard_of(shard)
    places: dict[int, Path] = {}
    counts: dict[int, Path] = {}
    for path, manifest in manifests.items():
        place, of = shard_of(manifest["identity"]["shard"])
        if place in places and of in counts:
            raise BadInput(f"{path}: shard {place}/{of}, as is {places[place]}; give each shard once")
        places[place], counts[of] = path, path
    if len(counts) > 1:
        named = ", ".join(f"{path} is one of {of}" for of, path in sorted(counts.items()))
        raise BadInput(f"shards of different numbers: {named}; sample all with the same N")
    [of] = counts
    each = of // count
    wanted = range(index * each, (index + 1) * each)
    if missing := [f"{place}/{of}" for place in wanted if place not in places]:
        raise BadInput(f"shards missing: {', '.join(missing[:8])}; sample them first, or give their files")
    return [places[place] for place in wanted]


def _identity(manifests: list[dict[str, Any]], paths: list[Path], shard: str) -> dict[str, Any]:
    """What all shards have in common, as one run would have it. Raises BadInput if they differ."""
    first = manifests[0]["identity"]
    for manifest in manifests[1:]:
        other = manifest["identity"]
        names = (first.keys() | other.keys()) - {"shard", "prompts_sha256"}
        if differing := sorted(name for name in names if first.get(name) != other.get(name)):
            raise BadInput(
                f"shards {first['shard']} and {other['shard']} were made with different "
                f"{', '.join(differing)}; these are files of different runs"
            )
    prompts = joined_sha256([manifest["identity"]["prompts_sha256"] for manifest in manifests])
    return {**first, "shard": shard, "prompts_sha256": prompts}


def _check_out(out: Path, paths: list[Path], identity: dict[str, Any]) -> None:
    if out.resolve() in {path.resolve() for path in paths}:
        raise BadInput(f"{out}: is one of the shards; give another --out")
    if out.is_dir():
        raise BadInput(f"{out}: is a folder; --out takes a file name such as candidates.jsonl")
    if (out.exists() or manifest_of(out).exists()) and read_manifest(out)["identity"] != identity:
        raise BadInput(f"{out}: holds the candidates of another run; give another --out")


def _record(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and costs of all shards together."""
    costs = [manifest["cost"] for manifest in manifests]
    cuts = [manifest["readme_cut"] for manifest in manifests]
    dollars = [manifest["dollars"] for manifest in manifests if manifest.get("dollars") is not None]
    return {
        "rows": sum(manifest["rows"] for manifest in manifests),
        "cost": {name: round(sum(cost[name] for cost in costs), 1) for name in costs[0]},
        "readme_cut": {name: sum(cut[name] for cut in cuts) for name in cuts[0]},
        "dollars": round(sum(dollars), 6) if dollars else None,
        "context": manifests[0].get("context"),
        "config": {**manifests[0]["config"], "shard": "0/1"},
        "adapter": manifests[0].get("adapter"),
        "versions": versions(),
        "shards": len(manifests),
    }


def _lines(path: Path, seen: set[RowKey]) -> Iterator[bytes]:
    """The lines of a shard. Raises BadInput for a row that was seen before."""
    with open(path, "rb") as file:
        for line, values in whole_lines(file, path):
            key = RowKey(values["github_id"], values["id"])
            if key in seen:
                raise BadInput(f"{path}: row {key.github_id}/{key.id} for the second time")
            seen.add(key)
            yield line


if __name__ == "__main__":
    run_script(JoinConfig, main)
