"""A repository's README page as the plain text that a model reads.

The paper's "Raw README" is the rendered text of one page, not its markdown: its Table 8 is met by
GitHub-flavoured markdown turned into HTML, and the text of that.
"""

import cmarkgfm
from bs4 import BeautifulSoup
from cmarkgfm.cmark import Options


def readme_text(markdown: str) -> str:
    """The rendered plain text of a markdown page."""
    html = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    return BeautifulSoup(html, "html.parser").text
