"""What "Raw README" means: the rendered plain text of a page."""

from dataclasses import replace
from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.readmes import page_of, read_readme, readme_pages, readme_text, readmes_below
from mlbench_data.repositories import Repository
from tests.mlbench_data.samples import make_row


def test_markup_goes_and_words_stay() -> None:
    page = "# Title\n\nSome **bold** and `code`, a [link](https://example.org/page).\n"
    assert readme_text(page) == "Title\nSome bold and code, a link.\n"


def test_code_blocks_keep_every_character() -> None:
    code = "python train.py \\\n    --lr 0.1 < in.txt && echo '<b>&amp;</b>'\n"
    assert readme_text(f"```bash\n{code}```\n") == code + "\n"


def test_html_is_rendered_as_github_does() -> None:
    page = '<p align="center"><img src="logo.png" alt="logo"></p>\n\n<b>fast</b> &amp; small\n'
    assert readme_text(page).split() == ["fast", "&", "small"]


def test_tables_become_the_text_of_their_cells() -> None:
    assert readme_text("| option | default |\n|---|---|\n| --lr | 0.1 |\n").split() == [
        "option",
        "default",
        "--lr",
        "0.1",
    ]


def test_a_stray_closing_tag_does_not_end_the_page() -> None:
    assert readme_text("before\n\n</article>\n\nafter\n").split() == ["before", "after"]


def test_an_empty_page_is_empty() -> None:
    assert readme_text("") == ""


# --- which pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a root page, an English one, pages below, and a program that sounds like a page."""
    pages = {
        "README.md": "# Root *page*",
        "README_EN.md": "# English",
        "docs/readme.txt": "# plain # text",
        "docs/README": "no ending",
        "docs/README.zh-CN.md": "# other",
        "tools/readme_check.py": "print()",
        "tools/READMEs.md": "# not a README",
    }
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_page_is_rendered_or_raw(folder: Path) -> None:
    assert read_readme(folder, "README.md", "rendered").split() == ["Root", "page"]
    assert read_readme(folder, "README.md", "raw") == "# Root *page*"
    assert read_readme(folder, "docs/readme.txt", "rendered") == "# plain # text"


def test_all_pages_begin_with_their_name_and_the_root_comes_first(folder: Path) -> None:
    text = read_readme(folder, "README.md", "all")
    names = ["README.md", "README_EN.md", "docs/README", "docs/README.zh-CN.md", "docs/readme.txt"]
    places = [text.index(f"{name}\n\n") for name in names]
    assert places == sorted(places)
    assert "print" not in text
    assert "not a README" not in text


def test_a_described_repository_reads_its_own_page_and_test_rows_theirs(folder: Path) -> None:
    described = Repository("x", "u", "a" * 40, "text", "test", readme="README.md", test_readme="README_EN.md")
    assert page_of(described, folder, test=False) == "README.md"
    assert page_of(described, folder, test=True) == "README_EN.md"
    assert page_of(replace(described, test_readme=None), folder, test=True) == "README.md"
    assert page_of(replace(described, readme="docs/none.md"), folder, test=False) is None


@pytest.mark.parametrize("name", ["README.md", "readme.md", "README.rst", "README"])
def test_a_repository_that_is_not_described_reads_the_usual_page(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("A *page*.")
    assert page_of(None, tmp_path, test=False) == name


def test_a_folder_without_pages_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no README page there; expected README\.md or the like"):
        readme_pages(tmp_path)


def test_folders_are_found_whatever_the_case_of_their_name(tmp_path: Path) -> None:
    (tmp_path / "TINY").mkdir()
    (tmp_path / "TINY" / "README.md").write_text("Here.")
    assert readmes_below(tmp_path, [make_row()], {}).texts == {7: "Here.\n"}
