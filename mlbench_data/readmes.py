"""A repository's README as the text that a model reads.

The paper's "Raw README" is the rendered text of one page, not its markdown: its Table 8 is met by
GitHub-flavoured markdown turned into HTML, and the text of that.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import cmarkgfm
from bs4 import BeautifulSoup
from cmarkgfm.cmark import Options

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Readmes
from mlbench_data.files import read_text
from mlbench_data.repositories import Repositories, Repository
from mlbench_data.rows import Row

ReadmeKind = Literal["rendered", "raw", "all"]
"""One page rendered, as in the paper; that page's own markdown; or every README page, each rendered."""

# A name that merely contains README may be a program: `readme_check.py`.
_LANGUAGE = r"([_-][\w-]+)?(\.[a-z]{2}(-[a-z]{2,4})?(?=\.))?"
_PAGE = re.compile(rf"readme{_LANGUAGE}(\.(md|markdown|rst|txt))?", re.IGNORECASE)
_USUAL_PAGES = ("README.md", "readme.md", "Readme.md", "README.rst", "README.txt", "README")


def readme_text(markdown: str) -> str:
    """The rendered plain text of a markdown page."""
    html = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    return BeautifulSoup(html, "html.parser").text


def read_readme(folder: Path, page: str, kind: ReadmeKind) -> str:
    """The README of a repository's folder. Raises BadInput if a page is missing or not UTF-8."""
    if kind == "all":
        pages = readme_pages(folder)
        return "\n\n".join(f"{path.relative_to(folder).as_posix()}\n\n{_page_text(path)}" for path in pages)
    text = read_text(folder / page, "a README page")
    return text if kind == "raw" else _rendered(text, page)


def readmes_below(
    folder: Path,
    rows: Iterable[Row],
    repositories: Repositories,
    kind: ReadmeKind = "rendered",
    allow_missing: bool = False,
) -> Readmes:
    """The README texts of the rows' repositories, laid out as FOLDER/REPOSITORY/README.md.

    Raises BadInput if a repository has no folder or page there, unless `allow_missing`.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; --readmes takes a folder laid out as REPOSITORY/README.md")
    checkouts = {path.name.lower(): path for path in folder.iterdir() if path.is_dir()}
    readmes, missing = Readmes(), []
    for github_id, name in {row.github_id: row.repository for row in rows}.items():
        checkout, repository = checkouts.get(name.lower()), repositories.get(name.lower())
        page = page_of(repository, checkout, False) if checkout else None
        if checkout is None or page is None:
            missing.append(f"{name}/{repository.readme if repository else 'README.md'}")
            continue
        readmes.texts[github_id] = read_readme(checkout, page, kind)
        test_page = page_of(repository, checkout, True)
        if test_page is None:
            missing.append(f"{name}/{repository.test_readme if repository else ''}")
        elif test_page != page:
            readmes.test[github_id] = read_readme(checkout, test_page, kind)
    if allow_missing and not readmes.texts:
        raise BadInput(f"{folder}: holds no README of any repository; expected REPOSITORY/README.md")
    if missing and not allow_missing:
        raise BadInput(
            f"{folder}: without {', '.join(sorted(missing))}; add them, or say --allow_missing_readmes"
        )
    return readmes


def page_of(repository: Repository | None, folder: Path, test: bool) -> str | None:
    """The name of the README page that (test) rows of a repository read; None if it is not in the folder.

    For a repository that is not described, the first of the usual names.
    """
    described = repository and ((test and repository.test_readme) or repository.readme)
    pages = [described] if described else _USUAL_PAGES
    return next((page for page in pages if (folder / page).is_file()), None)


def readme_pages(folder: Path) -> list[Path]:
    """Every README page below a folder, the root's first. Raises BadInput if there is none."""
    pages = [path for path in folder.rglob("*") if _PAGE.fullmatch(path.name) and path.is_file()]
    if not pages:
        raise BadInput(f"{folder}: no README page there; expected README.md or the like")
    return sorted(pages, key=lambda path: (len(path.relative_to(folder).parts), path.as_posix()))


def _page_text(path: Path) -> str:
    return _rendered(read_text(path, "a README page"), path.name)


def _rendered(text: str, name: str) -> str:
    return readme_text(text) if Path(name).suffix.lower() in (".md", ".markdown") else text
