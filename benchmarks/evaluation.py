"""A whole evaluation with attacks among its candidates: verdicts, memory, and what a kill costs.

    python benchmarks/evaluation.py

Every candidate is a row's own answer made different by a comment, so that each is run; every twentieth is
followed by an attack of eval/sandbox/attacks.py. The file is evaluated undisturbed, and again with a kill in
the middle; then every attack and one answer to each row run by themselves, one at a time.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measuring import print_result, print_table
from eval.checks import check_both
from eval.sandbox.attacks import ATTACKS
from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT, write_text
from mlbench_data.rows import BASH, Row, RowKey
from mlbench_data.sources import default_benchmark

VERDICT = ("status", "stage", "error_class", "type_ok", "parameters_ok", "ending", "exit_code")
ATTACK, FIRST, COMMENT = "# attack", "# candidate 0.", re.compile(r"# candidate \d+\.")
LIMITS = ("--timeout", "8", "--memory", "512MiB", "--preload", "numpy")
NAMES = {"secret": "/etc/hostname", "mark": "1234567890", "port": "9", "abstract": "nobody"}


@dataclass(frozen=True)
class EvaluationBenchmarkConfig:
    """How much is evaluated."""

    candidates: int = 2000
    """Candidates in all, at least."""
    attack_every: int = 20
    """Every so many-th candidate is followed by an attack."""
    quick: bool = False
    """120 candidates, of which every sixth is an attack: about three minutes."""
    out: str = "runs/benchmarks/evaluation"
    """Folder for the candidates and the results; what is finished there is kept."""


def main(config: EvaluationBenchmarkConfig) -> int:
    """A whole evaluation with attacks among its candidates."""
    if config.quick:
        config = replace(config, candidates=120, attack_every=6)
    out = Path(config.out)
    rows = default_benchmark().rows("full")
    answers = answers_with_attacks(config, rows)
    number = sum(map(len, answers.values()))
    attacks = sum(is_attack(code) for codes in answers.values() for code in codes)
    alone = {
        key: [code for code in codes if is_attack(code) or FIRST in code] for key, codes in answers.items()
    }
    write_candidates(answers, out / "undisturbed.jsonl")
    write_candidates(answers, out / "killed.jsonl")
    write_candidates(alone, out / "alone.jsonl")
    print(f"{number} candidates, {attacks} of them attacks", flush=True)
    started = time.monotonic()
    memory = evaluate(out, "undisturbed", number)
    seconds = time.monotonic() - started
    evaluate(out, "killed", number, kill_at=number // 2)
    evaluate(out, "killed", number)
    evaluate(out, "alone", number, workers=1)
    found = {name: verdicts(out / name) for name in ("undisturbed", "killed", "alone")}
    differing = {name: unlike(found[name], found["undisturbed"]) for name in ("killed", "alone")}
    for name, lines in differing.items():
        for line in lines[:10]:
            print(f"{name}: {line}")
    early, late = max(memory[: len(memory) // 4]), max(memory[len(memory) // 4 :])
    print_table(
        ("what", "value"),
        [
            ("candidates/s", number / seconds),
            ("MiB of the harness, first quarter", early / (1 << 20)),
            ("MiB of the harness, later", late / (1 << 20)),
            ("verdicts that differ after a kill", len(differing["killed"])),
            ("verdicts that differ alone", len(differing["alone"])),
        ],
    )
    same = not any(differing.values())
    print_result("evaluation", [late / early], same_answer=same, candidates=number, attacks=attacks)
    return 0 if same else 1


def answers_with_attacks(config: EvaluationBenchmarkConfig, rows: list[Row]) -> dict[RowKey, list[str]]:
    """The candidates of each row."""
    each = -(-config.candidates // len(rows))
    attacks = {kind: attack_codes(kind) for kind in ("bash", "python")}
    answers: dict[RowKey, list[str]] = {}
    for position, row in enumerate(rows):
        codes = answers.setdefault(row.key, [])
        for number in range(each):
            code = f"{row.output}\n# candidate {number}.\n"
            if (position * each + number) % config.attack_every == 1:
                attacking = f"{code}{ATTACK}\n{next(attacks['bash' if row.type == BASH else 'python'])}"
                code = attacking if check_both(row, attacking)["strict"].ok else code
            codes.append(code)
    return answers


def is_attack(code: str) -> bool:
    return ATTACK in code


def write_candidates(answers: dict[RowKey, list[str]], path: Path) -> None:
    """A candidates file."""
    lines = [{"github_id": key.github_id, "id": key.id, "output": codes} for key, codes in answers.items()]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def attack_codes(kind: str) -> Iterator[str]:
    """The attacks of one language, again and again."""
    while True:
        yield from (attack.code_with(NAMES) for attack in ATTACKS if attack.kind == kind)


def evaluate(out: Path, name: str, number: int, workers: int = 2, kill_at: int | None = None) -> list[int]:
    """Evaluates into a folder of its own; the harness's resident bytes as it went on. Killed by SIGKILL once
    so many results are there, if asked for.
    """
    folder = out / name
    command = [
        sys.executable,
        "eval/run.py",
        "--candidates",
        str(out / f"{name}.jsonl"),
        "--out",
        str(folder),
    ]
    print(f"{name}{'' if kill_at is None else ', to be killed'}", flush=True)
    process = subprocess.Popen(
        [*command, "--workers", str(workers), *LIMITS], cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL
    )
    seen: list[int] = []
    while process.poll() is None:
        time.sleep(0.5)
        done = len(lines_of(folder / "results.jsonl"))
        if kill_at is not None and kill_at < done < number:
            process.kill()
            process.wait()
            return seen
        try:
            seen.append(psutil.Process(process.pid).memory_info().rss)
        except psutil.Error:
            break
    if process.wait() != 0:
        raise SystemExit(f"eval/run.py ended with {process.returncode}")
    return seen


def lines_of(path: Path) -> list[bytes]:
    """A file's lines; none if it is not there yet."""
    return path.read_bytes().splitlines() if path.exists() else []


def verdicts(folder: Path) -> dict[tuple[int, int, str], dict[str, Any]]:
    """What the results say of each row's candidates by their code, without what no two runs have in common:
    time and memory. Candidates that differ in their comment only are one.
    """
    found: dict[tuple[int, int, str], dict[str, Any]] = {}
    for line in lines_of(folder / "results.jsonl"):
        value = json.loads(line)
        if value["code"] is not None:
            code = value["code"] if is_attack(value["code"]) else COMMENT.sub("", value["code"])
            verdict = {name: value[name] for name in VERDICT}
            key = (value["github_id"], value["id"], code)
            if found.setdefault(key, verdict) != verdict:
                verdict = {**verdict, "status": "DIFFERENT VERDICTS IN ONE RUN"}
            found[key] = verdict
    return found


def unlike(
    one: dict[tuple[int, int, str], dict[str, Any]], other: dict[tuple[int, int, str], dict[str, Any]]
) -> list[str]:
    """The candidates of one evaluation that have other verdicts, or none, in another."""
    return [
        f"row {key[0]}/{key[1]}: {verdict['status']} {verdict['exit_code']}, undisturbed "
        f"{there['status']} {there['exit_code']}: {key[2][-60:]!r}"
        for key, verdict in one.items()
        if (there := other[key]) != verdict
    ]


if __name__ == "__main__":
    run_script(EvaluationBenchmarkConfig, main)
