"""What the codes and causes mean: the sections of docs/checks.md, which travels with the package."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_PAGE = "checks.md"
_GROUP = re.compile(r"# (.+)")
_HEADING = re.compile(r"## (\S+) — (.+)")
_CODE = re.compile(r"GV[0-9]{3}")
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One code or cause."""

    name: str  # GV307, missing-mask
    title: str
    group: str  # heading it stands under
    text: str  # Markdown, without the heading


def sections() -> tuple[Section, ...]:
    """Return all sections in the order of the page."""
    return tuple(parse(files("gradverify").joinpath(_PAGE).read_text(encoding="utf-8")))


@cache
def causes() -> tuple[str, ...]:
    """Return the names of the causes."""
    return tuple(section.name for section in sections() if not _CODE.fullmatch(section.name))


@cache
def codes() -> tuple[str, ...]:
    """Return the codes of findings."""
    return tuple(section.name for section in sections() if _CODE.fullmatch(section.name))


def parse(page: str) -> Iterator[Section]:
    """Yield the sections of a page: `## NAME — title` up to the next heading, under the last `# group`."""
    group = ""
    found: re.Match[str] | None = None
    body: list[str] = []
    fenced = False
    for line in [*page.splitlines(), "# "]:
        fenced ^= line.startswith(_FENCE)
        if fenced or not line.startswith(("# ", "## ")):
            body.append(line)
            continue
        if found is not None:
            yield Section(name=found[1], title=found[2].strip(), group=group, text="\n".join(body).strip())
        found, body = _HEADING.fullmatch(line), []
        outer = _GROUP.fullmatch(line)
        group = outer[1].strip() if outer else group


def section_of(name: str, known: tuple[Section, ...]) -> Section | None:
    """Return the section of this name, in any case, None where there is none."""
    return next((section for section in known if section.name.lower() == name.strip().lower()), None)


def near(name: str, known: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the names that look most like `name`, best first."""
    names = {section.name.lower(): section.name for section in known}
    return tuple(names[found] for found in difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6))
