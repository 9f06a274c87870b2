"""What "Raw README" means: the rendered plain text of a page."""

import json
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from mlbench_data.readmes import readme_text


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


@pytest.mark.parametrize(
    ("repository", "page"),
    [
        ("if", "README.md"),
        ("PyTorch-GAN", "README.md"),
        ("esm", "README.md"),
        ("bert", "README.md"),
        ("open_clip", "README.md"),
        ("Time-Series-Library", "README.md"),
        ("text_classification", "README.md"),
        ("stablediffusion", "README.md"),
    ],
)
def test_lengths_are_those_of_the_papers_table_8(shared_data: Path, repository: str, page: str) -> None:
    """Within 1% of the CodeLlama column (train, without BOS)."""
    tables = json.loads((shared_data / "paper" / "tables.json").read_text())
    published = tables["table8_tokens_per_repository"][repository]["codellama.readme.train"]
    tokenizer = SentencePieceProcessor(model_file=str(shared_data / "tokenizers" / "llama.model"))
    text = readme_text((shared_data / "readmes" / repository / page).read_text(encoding="utf-8"))
    assert len(tokenizer.encode(text)) == pytest.approx(published, rel=0.01)
