"""Prepared prompts: the builder's very tokens, the same bytes for any number of workers, whole or absent."""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlbench_data.benchmark import Benchmark, Readmes, write_benchmark
from mlbench_data.models import Model, load_tokenizer
from mlbench_data.prompts import PromptBuilder, TaskNumber
from mlbench_data.template import read_template
from tests.helpers import RunScript
from tests.mlbench_data.samples import bytes_below, make_row

SCRIPT = "mlbench_data/prepare.py"
LONG = "".join(f"Step {number} runs `python step{number}.py --value {number}`.\n" for number in range(900))


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """More rows than one chunk has, over a README that does not fit and one that does."""
    rows = [make_row(number, github_id=7 + number % 2, github=f"https://example.org/r{number % 2}")
            for number in range(600)]  # fmt: skip
    out = tmp_path_factory.mktemp("prepare") / "benchmark"
    return write_benchmark(out, {"id_train": rows}, Readmes({7: LONG, 8: "Short."}), {"source": "rows"})


@pytest.fixture(scope="module")
def prepared(
    benchmark: Benchmark,
    tokenizer_model: Model,
    run_script: RunScript,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    done = run_script(SCRIPT, "--benchmark", benchmark.folder, "--split", "id_train", "--workers", 1,
                      "--model", tokenizer_model.location, "--out", out, check=True)  # fmt: skip
    assert "1 Raw README" in done.stdout
    assert "50.0%" in done.stdout
    return out


@pytest.mark.parametrize("task", [1, 2, 3])
def test_the_files_hold_the_builders_tokens_in_the_order_of_the_rows(
    prepared: Path, benchmark: Benchmark, tokenizer_model: Model, task: TaskNumber
) -> None:
    builder = PromptBuilder(load_tokenizer(tokenizer_model), tokenizer_model, read_template(None), task, 256)
    expected = builder.prompts(benchmark.rows("id_train"), benchmark, "id_train")
    starts = pq.read_table(prepared / "starts.parquet")["tokens"].to_pylist()
    lines = pq.read_table(prepared / f"task{task}.parquet").to_pylist()
    assert [starts[line["start"]][: line["start_tokens"]] + line["tokens"] for line in lines] == [
        prompt.token_ids for prompt in expected
    ]
    assert [(line["readme"], line["kept"], line["lost"]) for line in lines] == [
        (prompt.cut.readme, prompt.cut.kept, prompt.cut.lost) for prompt in expected
    ]


def test_what_rows_share_is_stored_once(prepared: Path) -> None:
    starts = pq.read_table(prepared / "starts.parquet")["tokens"].to_pylist()
    assert len({tuple(start) for start in starts}) == len(starts)
    task1 = pq.read_table(prepared / "task1.parquet").to_pylist()
    assert len({line["start"] for line in task1}) == 2


@pytest.mark.parametrize("workers", [2, 3])
def test_the_bytes_do_not_depend_on_the_number_of_workers(
    prepared: Path,
    benchmark: Benchmark,
    tokenizer_model: Model,
    run_script: RunScript,
    tmp_path: Path,
    workers: int,
) -> None:
    run_script(SCRIPT, "--benchmark", benchmark.folder, "--split", "id_train", "--workers", workers,
               "--model", tokenizer_model.location, "--out", tmp_path / "out", check=True)  # fmt: skip
    assert bytes_below(tmp_path / "out") == bytes_below(prepared)


def test_the_manifest_counts_what_was_cut(prepared: Path) -> None:
    counts = json.loads((prepared / "manifest.json").read_text())["counts"]
    assert counts["1"]["rows"] == 600
    assert counts["1"]["cut_rows"] == 300
    assert counts["1"]["cut_tokens"] >= counts["1"]["most_cut"] > 0
    assert counts["3"]["cut_rows"] == 0
    assert counts["1"]["computed"] < counts["1"]["tokens"] / 20


def test_without_out_nothing_is_written(run_script: RunScript, tokenizer_model: Model) -> None:
    done = run_script(
        SCRIPT, "--split", "quarter", "--tasks", 3, "--model", tokenizer_model.location, check=True
    )
    assert "3 Oracle segment" in done.stdout
    assert "written" not in done.stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_an_instruction_longer_than_the_budget_names_the_row_and_leaves_nothing(
    run_script: RunScript, tokenizer_model: Model, tmp_path: Path, workers: int
) -> None:
    rows = [make_row(number) for number in range(400)] + [make_row(400, instruction="word " * 9000)]
    benchmark = write_benchmark(tmp_path / "b", {"full": rows}, Readmes({7: "A."}), {"source": "rows"})
    given = ("--benchmark", benchmark.folder, "--model", tokenizer_model.location, "--workers", workers)
    assert "error: row tiny 400: instruction and template take" in last_line(
        run_script(SCRIPT, *given, "--out", tmp_path / "out")
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--workers", "0"], "answer_tokens and workers must be 1 or more"),
        (["--benchmark", "missing"], "expected a prepared benchmark"),
        (["--tasks", "4"], "4"),
        (["--windows", "10", "1"], "windows is [10, 1]; expected sentences, stride and most sentences"),
        (["--windows", "10", "0", "1000"], "stride is 0; expected 1 or more"),
        (["--out", "tests"], "not empty and not a folder of prepared prompts"),
    ],
)
def test_bad_input_is_one_line(run_script: RunScript, arguments: list[str], error: str) -> None:
    assert error in last_line(run_script(SCRIPT, *arguments))


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    """The error line; lines that say how far the script is may come before it."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]
