"""A case as text and as HTML, and an exploration as HTML, for an interactive session or a notebook."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.lines import to_text
from gradverify.report.page import assets
from gradverify.report.page.details import case_details
from gradverify.report.page.explored import explored_details
from gradverify.report.page.picture import Picture
from gradverify.report.screen import UNICODE, Detail, Screen
from gradverify.report.uncovered_text import uncovered_facts
from gradverify.report.words import case_badge
from gradverify.result import CaseResult, Exploration

_MOST_ROWS = 1000  # of one finding; `max_elements` keeps fewer
_WIDEST, _LARGEST, _SMALLEST = 250, 26, 5  # pixels of a panel, and of a cell
_NEUTRAL, _NOT_FINITE = "#f1f1f1", "#000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One cell of a panel."""

    x: int  # pixels
    y: int
    fill: str  # a CSS colour
    element: int  # number of the element it shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One heat map of a finding."""

    title: str
    size: int  # pixels of a cell
    width: int  # pixels
    height: int
    squares: tuple[Square, ...]


def case_text(case: CaseResult, width: int) -> str:
    """Return what a screen of so many columns says of a case; if it is as expected, with what each check found."""
    detail = Detail.VERBOSE if case.as_expected else Detail.NORMAL
    return to_text(case_detail(case, Screen(width=width), DetailOptions(detail=detail))).rstrip("\n")


def case_html(case: CaseResult) -> str:
    """Return the tables and heat maps of a case as HTML without a script; whatever text it holds stays text."""
    return _rendered("case", case=case, badge=case_badge(case, UNICODE), details=case_details(case, _MOST_ROWS))


def exploration_html(exploration: Exploration) -> str:
    """Return the tries of an exploration and the failures found as HTML without a script; text stays text."""
    facts = uncovered_facts(exploration.uncovered)
    return _rendered("exploration", explored=explored_details(exploration, _MOST_ROWS), facts=facts)


def panels_of(picture: Picture) -> tuple[Panel, ...]:
    """Return the heat maps of backward's values, the numeric values and their differences."""
    rows, columns = len(picture.rows), len(picture.columns)
    size = max(_SMALLEST, min(_LARGEST, _WIDEST // max(rows, columns)))
    strengths = (
        (picture.names[0], [_signed(cell.analytic) for cell in picture.cells]),
        (picture.names[1], [_signed(cell.numeric) for cell in picture.cells]),
        ("difference, by decades", [_mixed("#efe6f3", "#4b1369", cell.error) for cell in picture.cells]),
    )
    return tuple(
        Panel(
            title=title,
            size=size,
            width=columns * size,
            height=rows * size,
            squares=tuple(
                Square(x=cell.column * size, y=cell.row * size, fill=fill, element=cell.element)
                for cell, fill in zip(picture.cells, fills, strict=True)
            ),
        )
        for title, fills in strengths
    )


def _rendered(name: str, **values: object) -> str:
    from jinja2 import DictLoader, Environment, StrictUndefined  # only where HTML is made

    environment = Environment(
        autoescape=True,
        loader=DictLoader(assets.notebook()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["panels_of"] = panels_of
    return environment.get_template(name).render(values)


def _signed(strength: int | None) -> str:
    return _mixed(_NEUTRAL, "#b35806" if strength is None or strength >= 0 else "#0b5fa5", strength)


def _mixed(faint: str, strong: str, strength: int | None) -> str:
    """Return the colour at `strength` percent of the way; a number that is not finite has a colour of its own."""
    if strength is None:
        return _NOT_FINITE
    pairs = [(int(faint[k : k + 2], 16), int(strong[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(low + abs(strength) / 100 * (high - low)):02x}" for low, high in pairs)
