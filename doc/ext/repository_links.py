# SPDX-License-Identifier: Apache-2.0
"""Links that work on a repository page and on the site: to files of the source tree that are pages of the site, too.

A page of doc/ that includes a file, such as devstack.md, stands for that file: a link to `../devstack/README.md` leads
to it, as does a link between two such files. Other files of the source tree to which a page links are copied to the
site.
"""

from __future__ import annotations

import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

LINK = re.compile(r"\]\(([\w./-]+\.md)\)")
INCLUDE = re.compile(r"^```\{include\} (\S+)$", re.MULTILINE)


def standing_for_files(folder: Path) -> dict[str, str]:
    """Return file -> page, as pages of *folder* name them, for every page that includes a file."""
    return {
        included: page.name
        for page in sorted(folder.glob("*.md"))
        for included in INCLUDE.findall(page.read_text(encoding="utf-8"))
    }


def _rewrite(app: Sphinx, _page: str, source: list[str]) -> None:
    for included, page in standing_for_files(Path(app.srcdir)).items():
        source[0] = source[0].replace(f"]({included}", f"]({page}")


def _rewrite_included(app: Sphinx, included: Path, _page: str, text: list[str]) -> None:
    """Let links between files that are included lead from page to page."""
    folder = Path(app.srcdir)
    here = (folder / included).resolve().parent
    pages = {(folder / file).resolve(): page for file, page in standing_for_files(folder).items()}
    for target in set(LINK.findall(text[0])):
        if page := pages.get((here / target).resolve()):
            text[0] = text[0].replace(f"]({target})", f"]({page})")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what rewrites the links, and that HTTP messages have no colours: Pygments knows complete ones only."""
    app.connect("source-read", _rewrite)
    app.connect("include-read", _rewrite_included)
    app.add_lexer("http", TextLexer)
    return {"parallel_read_safe": True}
