"""One dataclass is a command line: shorthands are spelled out, mistakes are one clear line."""

import errno
import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import parse, run_script, spelled_out


@dataclass(frozen=True)
class Options:
    """Options of a made-up script."""

    folders: list[str] = field(default_factory=list, metadata={"positional": True})
    """Folders, named without a flag."""
    gold: bool = False
    """A switch."""
    splits: list[str] = field(default_factory=lambda: ["full"])
    """Names."""
    sizes: list[int] | None = None
    """Numbers."""
    out: str = "out"
    """A file."""
    seed: int = 0
    """A number."""


@dataclass(frozen=True)
class WithoutWords:
    """A script that takes no bare words."""

    gold: bool = False
    """A switch."""


@pytest.mark.parametrize(
    "arguments", [["--gold"], ["--gold", "true"], ["--gold=true"], ["--gold", "--seed", "0"]]
)
def test_a_switch_needs_no_value(arguments: list[str]) -> None:
    assert parse(Options, "", arguments).gold is True


def test_a_switch_can_be_turned_off() -> None:
    assert parse(Options, "", ["--gold", "false"]).gold is False


@pytest.mark.parametrize(
    "arguments",
    [["--splits", "full", "quarter"], ["--splits", '["full", "quarter"]'], ["--splits=[full, quarter]"]],
)
def test_values_of_a_list_may_stand_side_by_side(arguments: list[str]) -> None:
    assert parse(Options, "", arguments).splits == ["full", "quarter"]


def test_a_text_in_brackets_is_a_text() -> None:
    """As `--stop [INST]` is."""
    assert parse(Options, "", ["--splits", "[INST]"]).splits == ["[INST]"]
    assert parse(Options, "", ["--splits", "[INST]", "a"]).splits == ["[INST]", "a"]


def test_numbers_of_a_list_are_numbers_and_may_be_negative() -> None:
    assert parse(Options, "", ["--sizes", "3", "-4", "--seed", "-1"]).sizes == [3, -4]


@pytest.mark.parametrize(
    "arguments", [["a", "b", "--out", "x", "--gold"], ["--gold", "--out", "x", "a", "b"]]
)
def test_bare_words_go_to_the_positional_field_wherever_they_stand(arguments: list[str]) -> None:
    assert parse(Options, "", arguments) == Options(folders=["a", "b"], gold=True, out="x")


def test_the_value_of_config_is_no_bare_word() -> None:
    assert spelled_out(Options, ["--config", "file.yaml", "a"]) == [
        "--config",
        "file.yaml",
        "--folders",
        '["a"]',
    ]


def test_a_bare_word_is_an_error_where_none_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(WithoutWords, "", ["--gold", "report"])
    assert stop.value.code == 2
    assert "report" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["sede", "see"])
def test_an_unknown_flag_names_the_nearest_one(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that begins like a real one, which argparse takes for it unless told otherwise."""
    with pytest.raises(SystemExit) as stop:
        parse(Options, "", [f"--{word}", "1"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"error: unknown option {word!r}; did you mean seed?\n"


def test_bad_input_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def main(config: Options) -> int:
        raise BadInput("file.jsonl:3: not a row")

    with pytest.raises(SystemExit) as stop:
        run_script(Options, main, [])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: file.jsonl:3: not a row\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (JobFailed("the adapter is empty"), "error: the adapter is empty\n"),
        (OSError(errno.ENOSPC, "No space left on device", "out.jsonl"),
         "error: out.jsonl: No space left on device; make room and run the same command again\n"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_done_is_one_line_and_exit_code_1(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(_config: WithoutWords) -> int:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_script(WithoutWords, main, [])
    assert ended.value.code == 1
    assert capsys.readouterr().err == line


def test_an_error_of_ours_keeps_its_traceback() -> None:
    def main(_config: WithoutWords) -> int:
        raise OSError(errno.EIO, "a broken disk is no full one")

    with pytest.raises(OSError, match="broken disk"):
        run_script(WithoutWords, main, [])


def test_an_argument_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """As the shell hands on bytes that are not UTF-8; a file of that name could not go into a manifest."""
    with pytest.raises(SystemExit) as stop:
        parse(Options, "", ["--out", "\udcff.jsonl"])
    assert stop.value.code == 2
    assert "is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENAMETOOLONG, errno.EROFS])
def test_a_file_that_cannot_be_used_is_one_line(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(_options: WithoutWords) -> int:
        raise OSError(number, "reason", "some.jsonl")

    with pytest.raises(SystemExit) as stop:
        run_script(WithoutWords, refused, [])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("error: some.jsonl: reason; ")


def test_a_reader_that_has_seen_enough_ends_a_script_quietly() -> None:
    code = "from mlbench_data.cli import run_script\nfrom dataclasses import dataclass\n"
    code += "@dataclass\nclass C:\n    '''None.'''\n"
    code += (
        "def main(c):\n    for n in range(100_000): print('line', n)\n    return 0\nrun_script(C, main, [])"
    )
    command = f'{sys.executable} -c "$CODE" | head -1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "CODE": code}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, "line 0\n", "")
