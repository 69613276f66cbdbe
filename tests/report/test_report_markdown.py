"""Markdown for the page of a job: short, and nothing that a user's text says is obeyed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_specimens import (
    case,
    crashed,
    everything,
    failing_check,
    finding,
    masked,
    report,
    second_order,
    skipped,
    timed_out,
    wrong_on_purpose,
)
from test_report_golden import compare

from gradverify.report.ci.escape import block, code, prose
from gradverify.report.ci.markdown import to_markdown
from gradverify.result import Verdict

READER = MarkdownIt("commonmark").enable("table")
HOSTILE = [
    "*a* _b_ `c` ~~d~~ **e**",
    "[click](https://x.example) ![i](https://x.example/i.png) <https://x.example>",
    "<script>alert(1)</script> <b onclick=x> &lt; &amp; <!-- no end",
    "a | b \\| c \\\\| d",
    "``` ````` ` ``",
    "`",
    " `` ",
    "\n# heading\n\n- item\n> quote\n---\n| a |\n|---|\n",
    "$x^2$ $`y`$",
    "\x1b[31m\x00\ud800\u202e",
    "\\",
    "",
]


def test_every_kind() -> None:
    compare("markdown.md", to_markdown(everything()))


def test_what_is_as_expected_is_counted_and_no_more() -> None:
    text = to_markdown(report(case(), wrong_on_purpose(), skipped()))
    assert text.startswith("## gradverify: ✓ 3 cases as expected in 1.23 s\n")
    assert "###" not in text and "GV" not in text
    assert "| fail | 1 |  |\n| skip | 1 |  |\n" in text


def test_note_about_the_point_is_told_of_what_is_not_as_expected() -> None:
    note = "parameters that held one value were drawn around it: weight around 1"
    assert f"\n\nNote: {note}\n\n" in to_markdown(report(replace(masked(), note=note)))
    assert "Note:" not in to_markdown(report(masked(), replace(case(), note=note)))


def test_a_few_rows_of_many() -> None:
    text = to_markdown(report(second_order()))
    assert text.count("`cotangent[127,") == 5
    assert "… the worst 5 of 20,000." in text


def test_many_cases_and_findings_are_cut() -> None:
    many = replace(masked(), checks=(failing_check(findings=(finding(),) * 6),))
    text = to_markdown(report(*(replace(many, id=f"a/{number}/cpu") for number in range(60))))
    assert text.count("### ") == 50
    assert "… and 10 more that are not as expected." in text
    assert text.count("… and 2 more findings.") == 50
    assert len(text) < 200_000


def test_the_output_of_a_lost_worker_is_a_block() -> None:
    message = "GV904: timed out after 2 s; the last it printed:\nstep 1\n```\n<b>step 2"
    text = to_markdown(report(replace(timed_out(), message=message)))
    assert "**GV904**: timed out after 2 s; the last it printed:\n\n````text\nstep 1\n```\n<b>step 2\n````\n" in text


def test_of_a_flood_the_end_is_kept() -> None:
    flood = "".join(f"step {number}\n" for number in range(500))
    message = f"GV905: crashed: SIGSEGV; the last it printed:\n{flood}freed twice"
    text = to_markdown(report(replace(timed_out(), message=message)))
    assert "**GV905**: crashed: SIGSEGV; the last it printed:\n" in text
    assert "step 499\nfreed twice\n```\n" in text
    assert "step 1\n" not in text
    assert "```text\nstep " in text


@pytest.mark.parametrize("text", HOSTILE)
def test_text_comes_out_as_it_went_in(text: str) -> None:
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    tokens = READER.parse(f"says {prose(text)}")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert {child.type for child in children} <= {"text", "text_special"}
    assert " ".join("".join(child.content for child in children).split()) == " ".join(f"says {shown}".split())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_keeps_its_columns(text: str) -> None:
    tokens = READER.parse(f"| a | b |\n|---|---|\n| {code(text)} | {prose(text)} |\n| x | y |")
    assert sum(token.type == "td_open" for token in tokens) == 4
    assert {child.type for token in tokens for child in token.children or []} <= {
        "text",
        "text_special",
        "code_inline",
        "html_inline",
    }
    tags = {child.content for token in tokens for child in token.children or [] if child.type == "html_inline"}
    assert tags <= {"<code>", "</code>"}


@given(st.text())
def test_a_block_holds_any_text(text: str) -> None:
    (token,) = READER.parse("\n".join(block(text)))
    assert token.type == "fence"


def test_nobody_is_called_and_no_address_is_linked() -> None:
    assert prose("@team see https://x.example and WWW.x.example, a@b") == (
        "@<!-- -->team see https&#58;//x.example and WWW&#46;x.example, a@<!-- -->b"
    )


def test_hostile_names_leave_the_page_whole() -> None:
    for text in HOSTILE:
        hostile = replace(crashed(), id=text, spec=text, function=text, message=text, checks=())
        found = finding(of=text, wrt=text, cause=text, message=text, code="GV101")
        wrong = replace(hostile, verdict=Verdict.FAIL, checks=(failing_check(findings=(found,)),))
        tokens = READER.parse(to_markdown(report(hostile, wrong)))
        assert sum(token.type == "heading_open" for token in tokens) == 3, text
        assert sum(token.type == "tr_open" for token in tokens) == 6, text
        assert not [token for token in tokens if token.type in ("html_block", "blockquote_open", "hr")], text


def test_what_a_baseline_says_is_told() -> None:
    expired = replace(masked(), message="the baseline's entry gradcheck GV101 expired")
    assert "the baseline's entry gradcheck GV101 expired" in to_markdown(report(expired))
