"""The page: graded from saved results alone, self-contained, and safe to open whatever a model wrote."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eval import run, runner
from eval.config import EvalConfig
from eval.report import ReportConfig, main
from eval.results import read_results
from eval.sandbox.interface import Limits, Outcome, Program
from eval.saved_run import read_run, regrade
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.rows import Row
from tests.helpers import skip_or_fail

ATTACK = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Collects what a browser would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]


class Endless:
    """A sandbox in which everything times out."""

    name = "endless"

    def run(self, program: Program, limits: Limits) -> Outcome:
        return Outcome("timed_out", None, limits.seconds, None, "", f"stderr {ATTACK}", "")

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        return Path(name or sys.executable)

    def describe(self) -> dict[str, str]:
        return {"sandbox": self.name}


@pytest.fixture
def results(
    tmp_path: Path, rows_file: Path, rows: list[Row], repositories: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A finished strict evaluation whose candidates time out; one passes the paper's checks only."""
    monkeypatch.setattr(runner, "sandbox_of", lambda config, used: Endless())
    candidates = tmp_path / "candidates.jsonl"
    answers = [rows[0].output, f"python train.py --lr 0.15 # {ATTACK}"]
    candidates.write_text(json.dumps({"github_id": 7, "id": 1, "output": answers}) + "\n")
    config = EvalConfig(
        candidates=str(candidates),
        rows=str(rows_file),
        repositories=str(repositories),
        out=str(tmp_path / "run"),
        workers=1,
    )
    assert run.main(config) == 0
    return tmp_path / "run"


def test_saved_results_are_graded_under_both_modes(results: Path, rows: list[Row]) -> None:
    saved = read_results(results / "results.jsonl")
    assert [item.status for item in regrade(rows, saved, "strict", executed=True)] == [
        "timed_out",
        "missing_parameters",
        *["no_code"] * 4,
    ]
    assert [item.status for item in regrade(rows, saved, "paper", executed=True)] == [
        "passed",
        "passed",
        *["no_code"] * 4,
    ]


def test_where_the_modes_differ_stands_on_the_page(results: Path) -> None:
    """Both candidates that time out pass in mode paper."""
    text = (results / "report.html").read_text()
    assert text.count('data-modes="differ"') == 2
    assert read_run(results).summaries["paper"]["lower_bound"] is False


def test_results_that_left_out_what_passes_in_the_other_mode_are_refused(results: Path) -> None:
    path = results / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["ending"] = None
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BadInput, match="not run; evaluate them again"):
        read_run(results)


def test_two_runs_of_the_same_rows_are_compared_row_by_row(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = _compared(results)
    assert '<table id="differences">' in page
    assert "Pass@1 +0.0 (+0.0 to +0.0)" in capsys.readouterr().out


def test_the_page_needs_nothing_else_and_runs_nothing_that_a_model_wrote(results: Path) -> None:
    for text in ((results / "report.html").read_text(), _compared(results)):
        page = Page(text)
        assert page.scripts == 1
        assert page.addresses == []
        assert ATTACK not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "&lt;b&gt;please&lt;/b&gt;" in text
        assert "http://" not in text
        assert "url(" not in text


def _compared(results: Path) -> str:
    return _compared_file(results).read_text()


def _compared_file(results: Path) -> Path:
    out = results.parent / "report.html"
    assert main(ReportConfig(results=[str(results), str(results)], out=str(out))) == 0
    return out


def in_a_browser(page: Path, scratch: Path) -> str:
    """The page as it is once its script has run."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        skip_or_fail("no Chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={scratch}/b",
    ]
    command = [str(browser), *flags, "--dump-dom", page.resolve().as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_the_page_works_in_a_browser(results: Path, tmp_path: Path) -> None:
    """Its script runs, counts the rows, and asks for nothing over the network."""
    assert '<span id="shown">3 of 3 rows</span>' in in_a_browser(results / "report.html", tmp_path)


@pytest.mark.parametrize(
    "attack",
    [
        "<script>document.title = 'owned'</script>",
        "<img src=x onerror=\"document.title = 'owned'\">",
        '"><svg onload="document.title = \'owned\'">',
        "</pre></script><body onpageshow=\"document.title = 'owned'\">",
        "{{ 7 * 7 }}<iframe srcdoc=\"<script>parent.document.title = 'owned'</script>\"></iframe>",
    ],
)
def test_nothing_that_a_model_wrote_runs_in_the_readers_browser(
    results: Path, tmp_path: Path, attack: str
) -> None:
    """In candidates, in what they print, in instructions: all of it is text."""
    for name in ("results.jsonl", "rows.jsonl"):
        lines = [json.loads(line) for line in (results / name).read_text().splitlines()]
        for line in lines:
            for field in {"code", "stderr", "stdout", "instruction", "oracle"} & line.keys():
                if line[field]:
                    line[field] = attack + line[field]
        (results / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = in_a_browser(_compared_file(results), tmp_path)
    assert "<title>owned" not in page
    assert "owned" in page
    assert "7 * 7" in page or "{{" not in attack
    assert " of 3 rows</span>" in page


def test_a_script_that_got_into_the_page_would_not_run(results: Path, tmp_path: Path) -> None:
    """The second wall: the page's policy allows its own script only, by its hash."""
    path = results / "report.html"
    owned = "<script>document.title = 'owned'</script>"
    text = path.read_text()
    path.write_text(text.replace("<main>", f"{owned}<main>"))
    assert "<title>owned" not in in_a_browser(path, tmp_path)
    without = text[: text.index("<meta http-equiv")] + text[text.index("<meta name=") :]
    path.write_text(without.replace("<main>", f"{owned}<main>"))
    assert "<title>owned" in in_a_browser(path, tmp_path), "the attack itself does not work"


def test_folders_are_named_without_a_flag() -> None:
    assert parse(ReportConfig, "", ["a", "b", "--out", "x.html"]) == ReportConfig(["a", "b"], "x.html")


def test_an_unfinished_evaluation_is_refused(results: Path) -> None:
    path = results / "results.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(BadInput, match="unfinished: run the same command again"):
        read_run(results)


@pytest.mark.parametrize("summary", [None, "{}", "[]", "not json"])
def test_a_folder_that_is_no_result_is_refused(tmp_path: Path, summary: str | None) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(summary)
    with pytest.raises(BadInput, match=r"summary\.json"):
        read_run(tmp_path)


def test_an_unwritable_page_is_bad_input(results: Path) -> None:
    with pytest.raises(BadInput, match="cannot write there"):
        main(replace(ReportConfig(), results=[str(results)], out="/proc/report.html"))


@pytest.mark.parametrize(
    "damage",
    [
        {"id": 99},
        {"code": 5},
        {"candidate": "x"},
        {"seconds": "x"},
        {"stderr": None},
        {"checks": {"strict": {"type": None, "type_ok": True, "parameters_ok": True, "missing": []}}},
    ],
)
def test_damaged_results_are_refused(results: Path, damage: dict[str, Any]) -> None:
    path = results / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0] |= damage
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BadInput, match=r"results\.jsonl"):
        read_run(results)


def test_rows_of_equal_keys_that_differ_are_different_rows(results: Path) -> None:
    """As those of two versions of a benchmark are."""
    other = results.parent / "other"
    shutil.copytree(results, other)
    rows = [json.loads(line) for line in (other / "rows.jsonl").read_text().splitlines()]
    changed = [{**row, "instruction": "another version"} for row in rows]
    (other / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    out = results.parent / "both.html"
    assert main(ReportConfig(results=[str(results), str(other)], out=str(out))) == 0
    assert out.read_text().count('<details data-repository="') == 2 * len(rows)
