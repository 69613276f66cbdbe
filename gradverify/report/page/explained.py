"""What codes and causes mean, from the Markdown of the catalogue to blocks that a template writes out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from gradverify.catalogue import Section, sections
from gradverify.report.page.rows import checks_shown
from gradverify.result import Report

_CODE = re.compile(r"\bGV\d{3}\b")
_INDENT = "    "
_MARKED = re.compile(r"(`[^`]+`|\*\*[^*]+\*\*)")


class Look(StrEnum):
    """How a piece of text is set."""

    PLAIN = "plain"
    CODE = "code"
    STRONG = "strong"
    BLOCK = "block"  # lines of code, apart from the text


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some text with one look."""

    look: Look
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One code or cause."""

    name: str
    title: str
    blocks: tuple[tuple[Piece, ...], ...]  # paragraphs


def explanations(report: Report) -> tuple[Explanation, ...]:
    """Return what is to be known about every code and cause that the report names."""
    wanted = set(_named(report))
    return tuple(_explanation(section) for section in sections() if section.name in wanted)


def blocks_of(text: str) -> tuple[tuple[Piece, ...], ...]:
    """Return the paragraphs of a section; indented lines are code, also where an empty line stands between them."""
    chunks = (chunk.strip("\n") for chunk in text.split("\n\n"))
    groups = groupby((chunk for chunk in chunks if chunk), key=lambda chunk: chunk.startswith(_INDENT))
    return tuple(
        block
        for is_code, group in groups
        for block in ([_code("\n\n".join(group))] if is_code else map(_paragraph, group))
    )


def _code(text: str) -> tuple[Piece, ...]:
    return (Piece(look=Look.BLOCK, text="\n".join(line.removeprefix(_INDENT) for line in text.splitlines())),)


def _paragraph(text: str) -> tuple[Piece, ...]:
    return tuple(_piece(part) for part in _MARKED.split(" ".join(text.split())) if part)


def _piece(part: str) -> Piece:
    if part.startswith("`") and part.endswith("`") and len(part) > 2:
        return Piece(look=Look.CODE, text=part[1:-1])
    if part.startswith("**"):
        return Piece(look=Look.STRONG, text=part[2:-2])
    return Piece(look=Look.PLAIN, text=part)


def _explanation(section: Section) -> Explanation:
    return Explanation(name=section.name, title=section.title, blocks=blocks_of(section.text))


def _named(report: Report) -> Iterable[str]:
    for case in report.cases:
        yield from _CODE.findall(case.message)
        for check in checks_shown(case):
            yield from _CODE.findall(check.message)
            for finding in check.findings:
                yield from (finding.code, finding.cause or "", *_CODE.findall(finding.message))
