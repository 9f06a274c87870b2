"""A row is checked field by field; what is wrong is named with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.rows import BASH, COLUMNS, PYTHON, parse_row, read_rows, unique_rows
from tests.mlbench_data.samples import make_row, write_rows

HUB_COLUMNS = (
    "github_id", "github", "repo_id", "id", "path", "arguments", "instruction", "oracle", "type",
    "prefix_code", "output",
)  # fmt: skip


def values(**changes: Any) -> dict[str, Any]:
    return {**make_row().as_dict(), **changes}


def test_the_columns_are_those_of_the_hub_data_set() -> None:
    assert tuple(COLUMNS) == HUB_COLUMNS
    assert tuple(make_row().as_dict()) == HUB_COLUMNS
    assert [name for name, kind in COLUMNS.items() if kind is int] == ["github_id", "repo_id", "id"]


def test_a_row_keeps_its_values_and_further_columns_are_ignored() -> None:
    assert parse_row(values(prompt="from a later version"), "here") == make_row()


@pytest.mark.parametrize("column", HUB_COLUMNS)
def test_a_missing_column_is_named(column: str) -> None:
    incomplete = values()
    del incomplete[column]
    with pytest.raises(BadInput, match=rf"^rows.jsonl:3: row without {column};"):
        parse_row(incomplete, "rows.jsonl:3")


@pytest.mark.parametrize(
    ("column", "value"),
    [("id", "1"), ("id", True), ("id", 1.0), ("github_id", None), ("arguments", {"lr": "1"}), ("output", 3)],
)
def test_a_value_of_the_wrong_type_is_named(column: str, value: Any) -> None:
    with pytest.raises(BadInput, match=rf"^here: {column} is {type(value).__name__}; expected"):
        parse_row(values(**{column: value}), "here")


def test_an_unknown_type_names_the_two_that_there_are() -> None:
    with pytest.raises(BadInput, match=f"^here: type is 'Bash'; expected '{BASH}' or '{PYTHON}'"):
        parse_row(values(type="Bash"), "here")


@pytest.mark.parametrize(
    "arguments",
    ["", "lr=0.1", "{'lr': rate}", "['lr']", "'lr'", "{'lr': '0.1'", "{['lr']: 1}", "{'lr': [1}", "{" * 300],
)
def test_arguments_that_are_no_dict_literal_are_refused(arguments: str) -> None:
    with pytest.raises(BadInput, match=r"^here: arguments is not .*expected a dict literal"):
        parse_row(values(arguments=arguments), "here")


def test_arguments_are_never_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with pytest.raises(BadInput):
        parse_row(values(arguments=f"{{'lr': open({str(trace)!r}, 'w')}}"), "here")
    assert not trace.exists()


def test_parameters_are_text_whatever_the_literal_holds() -> None:
    row = make_row(arguments="{'lr': 0.1, 'gpu': None, 5: 'five', 'layers': [1, 2]}")
    assert row.parameters() == {"lr": "0.1", "gpu": "None", "5": "five", "layers": "[1, 2]"}
    assert make_row(arguments="{}").parameters() == {}


@pytest.mark.parametrize("address", ["https://github.com/dmlc/dgl", "https://github.com/dmlc/dgl/"])
def test_the_repository_is_the_last_part_of_the_address(address: str) -> None:
    assert make_row(github=address).repository == "dgl"


def test_a_key_is_repository_and_id_since_ids_repeat() -> None:
    assert len(list(unique_rows([make_row(github_id=1), make_row(github_id=2)], "rows.jsonl"))) == 2
    with pytest.raises(BadInput, match=r"^rows.jsonl: two rows have github_id 7, id 1"):
        list(unique_rows([make_row(), make_row(output="other")], "rows.jsonl"))


def test_rows_of_a_file_keep_its_order(tmp_path: Path) -> None:
    rows = [make_row(number) for number in (3, 1, 2)]
    assert read_rows(write_rows(tmp_path / "rows.jsonl", rows)) == rows


def test_an_error_in_a_file_names_the_line(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [make_row()])
    path.write_text(path.read_text() + "\n" + json.dumps(values(type="Perl")) + "\n")
    with pytest.raises(BadInput, match=r"rows\.jsonl:3: type is 'Perl'"):
        read_rows(path)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rows\.jsonl: no rows"):
        read_rows(write_rows(tmp_path / "rows.jsonl", []))


def test_the_real_rows_parse(shared_data: Path) -> None:
    rows = read_rows(shared_data / "mlbench" / "rows.jsonl")
    assert len(rows) == 104
    assert {row.type for row in rows} == {BASH, PYTHON}
    assert all(row.instruction.strip() and row.output.strip() and row.repository for row in rows)
    assert all(isinstance(row.parameters(), dict) for row in rows)
    first = rows[0]
    assert first.key == (1, 1)
    assert first.repository == "dgl"
    assert first.parameters() == {"dataset": "Citeseer", "lr": "0", "num-stacks": "5"}


def test_the_real_rows_share_ids_but_not_keys(shared_data: Path) -> None:
    rows = read_rows(shared_data / "mlbench" / "rows.jsonl")
    assert len({row.id for row in rows}) < len(rows) == len({row.key for row in rows})
