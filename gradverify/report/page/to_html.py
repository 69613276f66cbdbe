"""The report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Iterable

from gradverify.report.page import assets
from gradverify.report.page.details import case_details
from gradverify.report.page.explained import explanations
from gradverify.report.page.listing import (
    Line,
    environment_facts,
    headline,
    line_of,
    shares,
    skip_reasons,
    verdict_counts,
)
from gradverify.report.page.rows import rows_per_finding
from gradverify.report.shards import missing_text
from gradverify.result import Report
from gradverify.serial import to_plain


def to_html(report: Report) -> str:
    """Return the report as a page; whatever text it holds stays text."""
    from jinja2 import Environment, StrictUndefined  # only where HTML is made
    from markupsafe import Markup

    most_rows = rows_per_finding(report)
    lines = [line_of(number, case) for number, case in enumerate(report.cases)]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(assets.template()).render(
        policy=assets.policy(),
        style=Markup(assets.style()),
        script=Markup(assets.script()),
        headline=headline(report),
        good=bool(report.cases) and not (report.summary.unexpected or missing_text(report)),
        counts=verdict_counts(report.cases),
        shares=shares(report.cases),
        skips=skip_reasons(report.cases),
        environment=environment_facts(report),
        devices=_choices(line.device for line in lines),
        dtypes=_choices(line.dtype for line in lines),
        groups=_groups(lines),
        data=[Markup(embedded(case_details(case, most_rows))) for case in report.cases],
        explanations=explanations(report),
    )


def embedded(value: object) -> str:
    """Return a value as JSON that can stand in a script element: none of its characters can end one."""
    text = json.dumps(to_plain(value), separators=(",", ":"), allow_nan=False)  # ASCII, so no line separator either
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _choices(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _groups(lines: list[Line]) -> tuple[tuple[str, str, list[Line]], ...]:
    """Return the lines under their headings: what is not as expected comes first, the rest is folded away."""
    bad = [line for line in lines if not line.as_expected]
    good = [line for line in lines if line.as_expected]
    return tuple(group for group in (("bad", "Not as expected", bad), ("good", "As expected", good)) if group[2])
