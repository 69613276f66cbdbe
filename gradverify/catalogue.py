"""The checks, codes and causes by name, from Markdown pages beside the code that they explain.

Each check has the page `checks/NAME.md`: the page's name is the check's name, its sections are the codes that the check
reports. Reading them needs no torch. `make docs` puts all pages together as docs/checks.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

_FAILURES = "run/failures.md"
_CAUSES = "diagnosis/causes.md"
_GROUP = re.compile(r"# (.+)")
_HEADING = re.compile(r"## (\S+) — (.+)")
_FIRST_CODE = re.compile(r"^## (GV[0-9]{3}) — ", re.MULTILINE)
_CODE = re.compile(r"GV[0-9]{3}")
_MENDED = re.compile(r"^Mended\b", re.MULTILINE)
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One code or cause."""

    name: str  # GV307, missing-mask
    title: str
    group: str  # heading it stands under
    text: str  # Markdown, without the heading


@cache
def known_checks() -> tuple[str, ...]:
    """Return the names of the checks that a spec may use, in the order of their codes."""
    return tuple(_check_pages())


def sections() -> tuple[Section, ...]:
    """Return the sections of all pages: the codes of each check, then causes in the order in which they are tried."""
    return tuple(section for page in _pages() for section in parse(page))


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
    for heading, body in _divided(page):
        outer, found = _GROUP.fullmatch(heading), _HEADING.fullmatch(heading)
        group = outer[1].strip() if outer else group
        if found is not None:
            yield Section(name=found[1], title=found[2].strip(), group=group, text=body)


def document(printed: Mapping[str, str] | None = None) -> str:
    """Return all pages as one, from its first heading on; neighbours under the same heading share it.

    `printed` has what the wrong example of a code or cause prints, by name: it is put above the mended one.
    """
    parts: list[str] = []
    group = ""
    for page in _pages():
        for heading, body in _divided(page):
            repeated = heading == group
            group = heading if _GROUP.fullmatch(heading) else group
            found = _HEADING.fullmatch(heading)
            shown = (printed or {}).get(found[1], "") if found else ""
            parts += [part for part in ("" if repeated else heading, _with_output(body, shown)) if part]
    return "\n\n".join(parts) + "\n"


def _with_output(body: str, printed: str) -> str:
    """Return the text of a section with an output above its first mended example."""
    if not printed:
        return body
    mended = _MENDED.search(body)
    place = mended.start() if mended else len(body)
    shown = f"Prints:\n\n{_FENCE}text\n{printed.rstrip()}\n{_FENCE}"
    return f"{body[:place].rstrip()}\n\n{shown}\n\n{body[place:]}".rstrip()


def section_of(name: str, known: tuple[Section, ...]) -> Section | None:
    """Return the section of this name, in any case, None if there is none."""
    return next((section for section in known if section.name.lower() == name.strip().lower()), None)


def near(name: str, known: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the names that look most like `name`, best first."""
    names = {section.name.lower(): section.name for section in known}
    return tuple(names[found] for found in difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6))


def _pages() -> tuple[str, ...]:
    package = files("gradverify")
    others = (package.joinpath(path).read_text(encoding="utf-8") for path in (_FAILURES, _CAUSES))
    return (*_check_pages().values(), *others)


def _check_pages() -> dict[str, str]:
    """Return the page of each check by the check's name, in the order of their first codes."""
    entries = files("gradverify").joinpath("checks").iterdir()
    pages = {
        entry.name.removesuffix(".md"): entry.read_text(encoding="utf-8")
        for entry in entries
        if entry.name.endswith(".md")
    }
    return dict(sorted(pages.items(), key=lambda item: _FIRST_CODE.findall(item[1])[0]))


def _divided(page: str) -> Iterator[tuple[str, str]]:
    """Yield each heading of a page with the text below it; text above the first heading is left out."""
    heading, body, fenced = "", list[str](), False
    for line in [*page.splitlines(), "# "]:
        fenced ^= line.startswith(_FENCE)
        if fenced or not line.startswith(("# ", "## ")):
            body.append(line)
            continue
        if heading:
            yield heading, "\n".join(body).strip()
        heading, body = line, []


def write_document(path: Path, printed: Mapping[str, str]) -> None:
    """Replace everything from the first heading on in the document at `path`."""
    introduction, _, _ = path.read_text(encoding="utf-8").partition("\n# ")
    path.write_text(f"{introduction}\n{document(printed)}", encoding="utf-8")
