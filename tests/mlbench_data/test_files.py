"""Files are read with errors that name the place, and written whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.files import (
    cache_folder,
    claim,
    make_folder,
    read_json,
    read_jsonl,
    read_text,
    replacing,
    sha256_of,
    sha256_of_file,
    write_json,
    write_text,
)


def test_lines_come_with_their_numbers_and_blank_ones_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\r\n\n   \n{"a": "\xe2\x80\xa8 is no line end"}\n{"a": 3}')
    assert list(read_jsonl(path, "lines")) == [
        (1, {"a": 1}),
        (4, {"a": "\u2028 is no line end"}),
        (5, {"a": 3}),
    ]


@pytest.mark.parametrize(("line", "what"), [('{"a": 1', "broken JSON"), ("[1]", "not a JSON object")])
def test_a_wrong_line_is_named_by_file_and_line(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n\n' + line + "\n")
    with pytest.raises(BadInput, match=rf"lines\.jsonl:3: {what}.*expected one row a line"):
        list(read_jsonl(path, "one row a line"))


def test_a_wrong_json_file_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_text('{\n"a": 1,\n}')
    with pytest.raises(BadInput, match=r"value\.json:3: not JSON .*expected a manifest"):
        read_json(path, "a manifest")


def test_a_missing_file_a_folder_and_bytes_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(BadInput, match=r"missing: No such file or directory; expected a README"):
        read_text(tmp_path / "missing", "a README")
    with pytest.raises(BadInput, match=r"Is a directory; expected a README"):
        read_text(tmp_path, "a README")
    with pytest.raises(BadInput, match=r"latin: not UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "latin", "a README")


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    program = (
        "import os, signal, sys\n"
        "from mlbench_data.files import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half of the n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == -9
    assert path.read_text() == "old"


def test_replacing_puts_the_whole_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"b": "ä", "a": [1]})
    assert path.read_text(encoding="utf-8") == '{\n  "b": "ä",\n  "a": [\n    1\n  ]\n}\n'
    write_json(path, 2)
    assert read_json(path, "a number") == 2
    assert os.listdir(tmp_path) == ["value.json"]


def test_a_folder_is_made_and_a_folder_that_cannot_be_is_bad_input(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"file/below: cannot write there \(Not a directory\)"):
        make_folder(tmp_path / "file" / "below")


def test_an_output_belongs_to_one_process_until_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it ends by a kill: the lock goes with it."""
    program = (
        "import sys, time\n"
        "from mlbench_data.files import claim\n"
        "claim(sys.argv[1])\n"
        "print('mine', flush=True)\n"
        "time.sleep(60)\n"
    )
    path = tmp_path / "out.jsonl"
    other = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "mine\n"
    monkeypatch.setattr("mlbench_data.files.CLAIM_SECONDS", 0.5)
    with pytest.raises(
        BadInput, match=r"out\.jsonl: another process is writing it; give another name, or wait"
    ):
        claim(path)
    other.kill()
    other.communicate()
    claim(path)
    claim(path)  # one's own


def test_the_hash_of_a_value_does_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    assert sha256_of({"a": 1, "b": [1, 2]}) == sha256_of({"b": [1, 2], "a": 1})
    assert sha256_of({"a": 1, "b": [1, 2]}) != sha256_of({"a": 1, "b": [2, 1]})
    (tmp_path / "abc").write_text("abc")
    assert sha256_of_file(tmp_path / "abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLBENCH_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "nothing"])
def test_what_is_no_plain_file_is_never_replaced(tmp_path: Path, kind: str) -> None:
    """A device under the name would be destroyed."""
    path = tmp_path / "out"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(BadInput, match=r"not a plain file|not a place for a file"):
        write_json("" if kind == "nothing" else path, 1)
    assert [item.name for item in tmp_path.iterdir()] == ([] if kind == "nothing" else ["out"])


def test_a_link_keeps_pointing_at_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "value.json")
    write_json(tmp_path / "link.json", 1)
    assert (tmp_path / "link.json").is_symlink()
    assert read_json(tmp_path / "there" / "value.json", "a number") == 1
