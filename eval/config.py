"""What eval/run.py is told."""

import os
from dataclasses import dataclass, field
from typing import Literal

from eval.checks import Mode


@dataclass(frozen=True)
class EvalConfig:
    """What to evaluate, by which rules, and within which limits."""

    candidates: str = "runs/candidates/smollm2-135m-task3-full.jsonl"
    """File of answers, one row a line, as infer/generate.py writes it. Not read with --gold."""
    benchmark: str = "mini"
    """mini (embedded), or the folder of a prepared benchmark."""
    rows: str | None = None
    """FILE.jsonl with rows, instead of a benchmark."""
    split: str = "full"
    """Which split of the benchmark the candidates are for. A file of rows has none."""
    shard: str = "0/1"
    """I/N: only the I-th of N parts of the rows, counted from 0; --reuse makes one evaluation of all."""
    reuse: list[str] = field(default_factory=list)
    """Folders of earlier results, such as those of every shard: what was run there is not run again."""
    out: str | None = None
    """Folder for results.jsonl, summary.json and report.html. Default: runs/results/NAME, NAME that of the
    candidates file, or gold, with the shard if there is one."""
    mode: Mode = "strict"
    """strict: answers are parsed, values compared as values. paper: the published rules (substrings, and a
    timeout passes)."""
    execute: bool = True
    """Run what passes the checks. false: passing the checks counts, and nothing is run."""
    gold: bool = False
    """The rows' own answers are the candidates."""
    repositories: str | None = None
    """Folder of checkouts, DIR/REPOSITORY. Default: MiniBench's own."""
    any_commit: bool = False
    """Run in the paper's repositories as they are, even if they are not at their pinned commits."""
    sandbox: Literal["bubblewrap", "docker", "podman", "apptainer"] = "bubblewrap"
    """What runs candidates. bubblewrap: this machine's programs; the others: an image's, in containers."""
    image: str | None = None
    """The image for containers, which must be there already; for apptainer its file. Not needed for
    repositories that have one in --environments."""
    python: str | None = None
    """The interpreter that python means to candidates. Default: this one; in containers, the image's own."""
    environments: str | None = None
    """FILE.yaml: interpreter, variables, preparation and time of repositories: see eval/environments.py."""
    preload: list[str] = field(default_factory=lambda: ["numpy", "torch"])
    """Modules that python candidates find imported already, as if they had not been: they start from a fork.
    None of them is needed, and [] gives every candidate a fresh interpreter. Containers always do."""
    timeout: float = 60.0
    """Wall-clock seconds for one candidate."""
    memory: str = "2GiB"
    """Memory for one candidate with all its processes, such as 512MiB or 2GiB."""
    cores: float = 1.0
    """Processor cores for one candidate with all its processes, where control groups can limit them."""
    workers: int = len(os.sched_getaffinity(0))
    """How many candidates run at a time. Default: the number of processors."""
    allow_unsandboxed: bool = False
    """Where bubblewrap does not work, run candidates without a sandbox. They can then do all that you can."""
