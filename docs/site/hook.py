"""Pages of the site that lie outside docs/: the README and its neighbours, with links that work on the site too."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the root of the repository."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=for_site(text, name, page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the pages of the site; the pages from the root are done already."""
    uri = page.file.src_uri
    if uri == "checks.md":
        markdown = under_title("Checks and causes", markdown)
    return markdown if uri in PAGES.values() else for_site(markdown, f"docs/{uri}", uri)


def under_title(title: str, markdown: str) -> str:
    """Put a page of several parts, each with a heading of the first level, under one title."""
    return f"# {title}\n\n" + _outside_code(markdown, lambda text: re.sub(r"^#", "##", text, flags=re.MULTILINE))


def for_site(text: str, source: str, page: str) -> str:
    """Rewrite the relative links of `source`, a path in the repository, for `page`, a path in the site.

    A link to a file that is on no page, such as LICENSE, becomes its text. A link to a file that does not exist is
    left as it is, and the strict build rejects it.
    """

    def replaced(match: re.Match[str]) -> str:
        picture, words, target, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        there = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if there is None:
            return words if (ROOT / path).exists() else match[0]
        relative = os.path.relpath(there, posixpath.dirname(page) or ".").replace(os.sep, "/")
        return f"{picture}[{words}]({relative}{anchor})"

    return _outside_code(text, lambda part: _LINK.sub(replaced, part))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else change(part) for part in parts)
