"""Memory and time in words: on the screen, in Markdown and on the page."""

from __future__ import annotations

import pytest
from report_specimens import case, masked, report

from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.ci.markdown import to_markdown
from gradverify.report.inspect_view import InspectOptions, inspect_lines
from gradverify.report.lines import to_text
from gradverify.report.page.details import case_details
from gradverify.report.screen import Detail, Screen
from gradverify.report.terminal import report_lines
from gradverify.report.to_json import from_json, to_json
from gradverify.report.usage_text import usage_facts
from gradverify.usage import ComparedWith, Measured, Usage

HALF, WHOLE = Usage(saved_bytes=24, peak_bytes=3 << 20), Usage(saved_bytes=48, peak_bytes=3 << 20)
TIMED = Usage(saved_bytes=24, peak_bytes=72, forward_seconds=1.25e-5, backward_seconds=0.25)
CLAIMED = Measured(function=HALF, other=WHOLE, compared_with=ComparedWith.REFERENCE, claim="<= 0.5 * reference")
KEEPS = "keeps 24 B for backward, reference 48 B (expected <= 0.5 * reference)"


@pytest.mark.parametrize(
    ("measured", "facts"),
    [
        (None, ()),
        (Measured(missing="forward raised"), ()),
        (Measured(function=HALF), ()),
        (Measured(function=HALF, other=HALF), ()),
        (Measured(function=HALF, other=WHOLE), (("memory", "keeps 24 B for backward, plain torch 48 B"),)),
        (CLAIMED, (("memory", KEEPS),)),
        (
            Measured(function=HALF, other=HALF, claim="<= 24 B"),
            (("memory", "keeps 24 B for backward, as plain torch does (expected <= 24 B)"),),
        ),
        (
            Measured(function=HALF, claim="<= 24 B"),
            (("memory", "keeps 24 B for backward (expected <= 24 B)"),),
        ),
        (
            Measured(function=TIMED, other=HALF),
            (
                ("memory", "keeps 24 B for backward, as plain torch does; peak 72 B, plain torch 3 MiB"),
                ("time", "forward 0.0125 ms; backward 250 ms"),
            ),
        ),
        (
            Measured(function=TIMED, other=TIMED),
            (("time", "forward 0.0125 ms, plain torch 0.0125 ms; backward 250 ms, plain torch 250 ms"),),
        ),
    ],
)
def test_memory_and_time_are_said_unless_all_memory_is_equal(
    measured: Measured | None, facts: tuple[tuple[str, str], ...]
) -> None:
    assert usage_facts(case(measured=measured)) == facts


def test_screen_lists_memory_where_it_is_claimed() -> None:
    shown = report(case("a/b/cpu", measured=CLAIMED), case("c/d/cpu", measured=Measured(function=HALF, other=WHOLE)))
    text = to_text(report_lines(shown, Screen(width=100), DetailOptions()))
    assert f"\nmemory and time:\n  a/b/cpu\n    memory: {KEEPS}\n\n✓ 2 cases" in text
    assert "plain torch" not in text
    quiet = to_text(report_lines(shown, Screen(width=100), DetailOptions(detail=Detail.QUIET)))
    assert "memory" not in quiet


def test_details_and_reports_have_it() -> None:
    one = case(measured=CLAIMED)
    screen = Screen(width=100)
    assert f"  memory: {KEEPS}\n" in to_text(case_detail(one, screen, DetailOptions(detail=Detail.VERBOSE)))
    assert f"  memory: {KEEPS}\n" in to_text(inspect_lines([one], screen, InspectOptions()))
    assert ("memory", KEEPS) in case_details(one, 10).facts
    told = to_markdown(report(one, masked()))
    assert told.endswith(
        "\n### Memory and time\n\n- `clipped_relu/vector/cpu-float64`: keeps 24 B for backward, reference 48 B "
        "(expected &lt;= 0.5 \\* reference)\n"
    )
    assert from_json(to_json(report(one))) == report(one)
