"""The whole toolkit on MiniBench: what `make demo` runs. Every step is a command that you can run yourself.

python mlbench_data/mini/demo.py
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT, make_folder, read_json, write_json
from mlbench_data.prompts import TASKS, TaskNumber


@dataclass(frozen=True)
class DemoConfig:
    """How much to do, and where to."""

    task: Literal[1, 3] = 3
    """What the model reads: 1 whole READMEs, 3 the oracle segment."""
    out: str = "runs/demo"
    """Folder for everything that the demo makes; a relative one is below the project's."""
    max_new_tokens: int = 96
    """Longest answer, in tokens; MiniBench's longest has 95."""


@dataclass(frozen=True)
class Contestant:
    """One line of the table: the embedded model, raw or trained on a split."""

    name: str
    trained_on: str | None


RAW, ID, OOD = Contestant("raw", None), Contestant("id", "id_train"), Contestant("ood", "ood_train")
CONTESTANTS = {1: (RAW, ID), 3: (RAW, ID, OOD)}
MODEL = "smollm2-135m"


def main(config: DemoConfig) -> int:
    """Builds MiniBench, trains on ID rows (in task 3 on OOD rows too), samples, evaluates, prints a table."""
    os.chdir(PROJECT_ROOT)  # the commands that are printed can be repeated there
    out = make_folder(config.out)
    stages = Stages(out / "seconds.json")
    benchmark = str(out / "benchmark")
    if not (out / "benchmark" / "manifest.json").exists():
        stages.run("build", ["mlbench_data/build.py", "--source", "mini", "--out", benchmark])
    contestants = CONTESTANTS[config.task]
    for contestant in contestants:
        compete(config, contestant, benchmark, out, stages)
    table = [table_row(config.task, contestant, out, stages) for contestant in contestants]
    write_json(out / "table.json", table)
    reports = [str(out / "results" / contestant.name) for contestant in contestants]
    stages.run("report", ["eval/report.py", *reports, "--out", str(out / "report.html")])
    print_table(table, stages)
    print(f"\ntable.json and report.html are in {out}")
    return 0


def compete(config: DemoConfig, contestant: Contestant, benchmark: str, out: Path, stages: "Stages") -> None:
    """Trains if there is a training split, samples the test rows, and evaluates the candidates."""
    name = contestant.name
    candidates = str(out / "candidates" / f"{name}.jsonl")
    adapter = str(out / "adapters" / name)
    shared = ["--benchmark", benchmark, "--model", MODEL, "--task", str(config.task)]
    if contestant.trained_on is not None:
        recipe = ["--config", f"configs/train/{MODEL}-{name}-task{config.task}.yaml"]
        stages.run(f"train {name}", ["train/sft.py", *recipe, *shared, "--output_dir", adapter])
    with_adapter = ["--adapter", adapter] if contestant.trained_on else []
    length = ["--max_new_tokens", str(config.max_new_tokens)]
    stages.run(f"sample {name}", ["infer/generate.py", *shared, *with_adapter, *length, "--out", candidates])
    results = str(out / "results" / name)
    stages.run(
        f"evaluate {name}",
        ["eval/run.py", "--candidates", candidates, "--benchmark", benchmark, "--out", results],
    )


# Training on a CPU makes and drops tensors of many MB all the time. By default the C library gives each back
# to the kernel, which then clears the next one page by page; this keeps them, in huge pages, and made
# training a fifth to a third faster. It changes no number.
_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
    "glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"
}


class Stages:
    """Runs the stages' commands and remembers how long each took, also over several starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = read_json(path, "the demo's times") if path.exists() else {}
        self.done = {name for name in self.seconds if not name.startswith("stopped ")}

    def run(self, name: str, command: list[str]) -> None:
        """Runs one script; a stage that was done before only looks whether that still holds."""
        print(f"\n▶ {name}: python {' '.join(command)}", flush=True)
        started = time.monotonic()
        code = subprocess.run([sys.executable, *command], env=_MEMORY | os.environ).returncode
        self._remember(name, time.monotonic() - started, code == 0)
        if code != 0:
            print(f"stage '{name}' stopped with exit code {code}; the same command continues, and "
                  f"rm -r {self.path.parent} starts over", file=sys.stderr)  # fmt: skip
            raise SystemExit(code)

    def _remember(self, name: str, seconds: float, succeeded: bool) -> None:
        if name in self.done:
            return
        total = round(seconds + self.seconds.pop(f"stopped {name}", 0.0), 1)
        self.seconds[name if succeeded else f"stopped {name}"] = total
        write_json(self.path, self.seconds)


def table_row(task: TaskNumber, contestant: Contestant, out: Path, stages: Stages) -> dict[str, Any]:
    """One line of table.json. `pass@k` counts the first k candidates, as the paper's Table 1 does."""
    summary = read_json(out / "results" / contestant.name / "summary.json", "a summary of eval/run.py")
    seconds = {
        stage: stages.seconds.get(f"{stage} {contestant.name}") for stage in ("train", "sample", "evaluate")
    }
    passed = summary["pass_at_k"]
    return {
        "model": MODEL,
        "trained_on": contestant.trained_on,
        "task": task,
        "rows": summary["rows"],
        **{f"pass@{k}": passed[k]["first_k"] for k in ("1", "2", "5")},
        "unbiased": {f"pass@{k}": passed[k]["unbiased"] for k in ("1", "2", "5")},
        "parameter_hit_precision": summary["parameter_hit_precision"],
        "ceiling": summary["ceiling"],
        "seconds": round(sum(value for value in seconds.values() if value), 1),
        "stages": seconds,
    }


def print_table(table: list[dict[str, Any]], stages: Stages) -> None:
    """The demo's table, as percentages and seconds."""
    rows, task = table[0]["rows"], table[0]["task"]
    print(f"\nSmolLM2-135M on MiniBench, task {task} ({TASKS[task].lower()}), {rows} rows × 5 candidates\n")
    heads = (
        "trained on",
        "Pass@1",
        "Pass@2",
        "Pass@5",
        "hit (par.)",
        "hit (gen.)",
        "ceiling",
        "train",
        "sample",
        "eval",
    )
    print(f"{heads[0]:12}" + "".join(f"{head:>11}" for head in heads[1:]))
    for line in table:
        shares = [line[f"pass@{k}"] for k in (1, 2, 5)]
        shares += [line["parameter_hit_precision"][kind] for kind in ("parameter", "generation")]
        cells = [f"{100 * value:.1f}%" for value in [*shares, line["ceiling"]]]
        cells += [f"{value:.0f} s" if value else "–" for value in line["stages"].values()]
        print(f"{line['trained_on'] or 'nothing':12}" + "".join(f"{cell:>11}" for cell in cells))
    print(f"\nall stages: {sum(stages.seconds.values()):.0f} s")


if __name__ == "__main__":
    run_script(DemoConfig, main)
