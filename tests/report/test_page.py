"""The page: whole in itself, true to the report, and deaf to what text of others asks for."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_specimens import (
    case,
    check,
    contract,
    crashed,
    element,
    everything,
    failing_check,
    finding,
    masked,
    of_any_report,
    report,
    second_order,
    skipped,
    timed_out,
)

from gradverify.catalogue import sections
from gradverify.report.case_detail import DetailOptions
from gradverify.report.lines import plain
from gradverify.report.page.explained import blocks_of
from gradverify.report.page.picture import picture_of
from gradverify.report.page.rows import element_rows, rows_per_finding
from gradverify.report.page.to_html import embedded, to_html
from gradverify.report.screen import Screen
from gradverify.report.terminal import report_lines
from gradverify.result import PRINTED, Report, Source, Verdict
from gradverify.testing.failure import UnexpectedCase

HOSTILE = "</script><script>hit()</script><!--<script><img src=x onerror='hit()'>\"'><svg/onload=hit()>&lt;{{ 7*7 }}"
VOID = {"meta", "input", "link", "img", "br", "hr"}


class Page(HTMLParser):
    """A page taken apart by someone else's parser."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, text
        self.data: list[Any] = []  # what the cases' scripts hold
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        self.texts.append((inside, data))
        if inside == "script" and self.elements[-1][1].get("type") == "application/json":
            self.data.append(json.loads(data))

    def text_of(self, tag: str) -> str:
        return "".join(text for inside, text in self.texts if inside == tag)

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [found for _, found in self.elements if name in (found.get("class") or "").split()]


def page(*cases: Any, **changes: Any) -> Page:
    return Page(to_html(replace(report(*cases), **changes)))


def hostile() -> Report:
    """Everything that comes from outside says the same thing."""
    text = f"{HOSTILE}\n{HOSTILE}"
    found = finding(code=HOSTILE, of=HOSTILE, wrt=HOSTILE, message=text, cause=HOSTILE)
    bad = check(HOSTILE, verdict=Verdict.FAIL, message=text, findings=(found,))
    bad = replace(bad, torch=replace(bad.torch, name=HOSTILE, message=text))
    made = case(
        HOSTILE,
        spec=HOSTILE,
        function=HOSTILE,
        source=Source(file=HOSTILE, line=1),
        device=HOSTILE,
        dtype=HOSTILE,
        verdict=Verdict.FAIL,
        as_expected=False,
        message=text,
        checks=(bad,),
    )
    environment = replace(report().environment, python=HOSTILE, torch=HOSTILE, platform=HOSTILE, devices=(HOSTILE,))
    skip = case(HOSTILE, verdict=Verdict.SKIP, message=HOSTILE, checks=())
    return replace(report(made, skip), gradverify=HOSTILE, environment=environment)


def test_a_page_needs_nothing_but_itself() -> None:
    for tag, attributes in Page(to_html(everything())).elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "audio", "video", "a"}
        assert not {"src", "href", "style", "action", "srcset"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)


def test_the_policy_allows_this_style_and_this_script_alone() -> None:
    found = Page(to_html(everything()))
    policy = next(attributes for _, attributes in found.elements if "http-equiv" in attributes)["content"]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == f"'{hash_of(found.text_of('style'))}'"
    script = [text for inside, text in found.texts if inside == "script"][-1]
    assert rules["script-src"] == f"'{hash_of(script)}'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy and "http:" not in policy and "*" not in policy


def hash_of(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_text_of_others_stays_text() -> None:
    text, plain = to_html(hostile()), to_html(report(masked(), skipped()))
    found = Page(text)
    tags = [tag for tag, _ in found.elements]
    assert set(tags) <= {tag for tag, _ in Page(plain).elements}
    assert tags.count("script") == 3  # one for each case, and the page's own
    assert text.lower().count("</script") == 3
    assert "49" not in found.text_of("span")  # it is no template
    assert HOSTILE in "".join(text for inside, text in found.texts if inside == "span")
    assert [attributes["data-device"] for attributes in found.with_class("case")] == [HOSTILE, "cpu"]
    told = found.data[0]["checks"][0]["findings"][0]
    assert told["cause"] == HOSTILE
    assert told["why"] == HOSTILE
    assert told["rows"][0][0] == f"{HOSTILE}[1]"


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_any_text_can_be_embedded(text: str) -> None:
    made = embedded((text,))
    assert json.loads(made) == [text]
    assert made.isascii()
    assert not set("<>&") & set(made)


@pytest.mark.slow
@of_any_report
@given(st.builds(Report))
def test_any_report_is_a_page(made: Report) -> None:
    text = to_html(made)
    text.encode("utf-8")
    assert len(Page(text).data) == len(made.cases)


@pytest.mark.parametrize("text", ["\ud800", "\x00", "\x1b[31m", "\u2028", "\u202e"])
def test_what_cannot_be_printed_is_written_out(text: str) -> None:
    made = to_html(report(case(f"a{text}b", verdict=Verdict.ERROR, as_expected=False, checks=(), message=f"x{text}y")))
    made.encode("utf-8")
    assert text not in made


def test_what_is_not_as_expected_comes_first_and_the_rest_is_folded() -> None:
    found = page(case("a/good/cpu"), masked(), skipped())
    assert [group.get("class") for group in found.with_class("group")][:2] == ["group bad", "group good"]
    assert ["open" in group for group in found.with_class("group")] == [True, False, False]
    assert [item["id"] for item in found.with_class("case")] == ["case-1", "case-0", "case-2"]
    assert "1 of 3 cases not as expected" in found.text_of("h1")
    assert "– 1 case skipped: this machine has no device cuda" in found.text_of("p")


def test_a_case_tells_everything() -> None:
    told = page(masked()).data[0]
    assert dict(told["facts"])["backward"] == "specs/ops/clipped_relu.py:31"
    assert told["reproduce"] == "gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64'"
    first = told["checks"][0]
    assert first["answer"] == "25 entries, 2 wrong, 1 at a kink"
    assert first["cost"].startswith(
        "dense, largest error 1 with error bars up to 2e-11, detects a relative error of 1e-7"
    )
    assert (first["torch_differs"], first["torch"]) == (
        True,
        "torch.autograd.gradcheck: pass: no input lies beyond the clip value by its step",
    )
    shown = first["findings"][0]
    assert (shown["code"], shown["cause"], shown["why"][:15]) == ("GV101", "missing-mask", "analytic is not")
    assert [text.strip() for text in shown["rows"][1]] == [
        *("y[4]", "x[4]", "6.512345679", "1", "0.2500000000 ± 2e-11", "0.75", "3.1e-10", "2.5e9", "mismatch")
    ]


def test_the_causes_in_the_listing_name_their_check() -> None:
    other = failing_check(check="gradgradcheck", findings=(finding(code="GV202", cause="detached"),))
    made = replace(masked(), checks=(masked().checks[0], other, contract()))
    texts = [text for _, text in page(made).texts]
    assert [text for text in texts if text in ("gradcheck: missing-mask", "gradgradcheck: detached")] == [
        "gradcheck: missing-mask",
        "gradgradcheck: detached",
    ]


def test_the_command_names_what_a_spec_may_not_imply() -> None:
    told = page(case("a/b/cuda-float32", rerun=("--device", "cuda", "--memory", "2G"))).data[0]
    assert told["reproduce"].endswith("-k 'a/b/cuda-float32' --device cuda --memory 2G")


def test_the_line_of_a_case_ends_before_what_it_printed() -> None:
    lost = case("a/b", verdict=Verdict.ERROR, as_expected=False, checks=(), message=f"GV905: crashed{PRINTED}step 1")
    listed = [text for _, text in page(lost).texts if text.startswith("GV905:")]
    assert listed == ["GV905: crashed"]
    row = plain(report_lines(report(lost), Screen(width=200), DetailOptions())[0])
    assert row.split(maxsplit=3)[3].rsplit(maxsplit=2)[0] == "GV905: crashed"
    assert str(UnexpectedCase(lost)) == "error: GV905: crashed"


def test_output_and_tracebacks_keep_their_lines() -> None:
    lost = case(verdict=Verdict.ERROR, as_expected=False, checks=(), message="GV905: it crashed; it printed:\na\n  b")
    told = page(lost, crashed(), timed_out())
    assert (told.data[0]["message"], told.data[0]["output"]) == ("GV905: it crashed; it printed:", "a\n  b")
    raised = told.data[1]["checks"][0]["findings"][0]
    assert (raised["says"][:25], raised["rest"]) == ("forward raised ValueError", r"line two \u202eevil")
    assert told.data[2]["message"] == "no answer within 60 s"


def test_a_very_long_message_is_cut() -> None:
    told = page(case(verdict=Verdict.ERROR, as_expected=False, checks=(), message="x" * 10**6)).data[0]
    assert len(told["message"]) < 10_000
    assert "characters more" in told["output"]


def test_codes_and_causes_are_explained() -> None:
    found = page(masked(), timed_out(), case(message="GV906: too much"))
    names = [attributes["id"] for tag, attributes in found.elements if tag == "article"]
    assert names == ["explain-GV101", "explain-GV906", "explain-missing-mask"]


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.name)
def test_explanations_lose_no_word(section: Any) -> None:
    text = " ".join(piece.text for block in blocks_of(section.text) for piece in block)
    assert re.findall(r"\w+", text) == re.findall(r"\w+", section.text)
    assert "```" not in text


@pytest.mark.parametrize("cases", [(), (case(),), (timed_out(),), (skipped(), skipped(1)), (second_order(),)])
def test_reports_of_one_kind(cases: tuple[Any, ...]) -> None:
    found = page(*cases)
    assert len(found.data) == len(cases)
    assert ("No case has finished" in found.text_of("h1")) == (not cases)


def test_numbers_that_are_none() -> None:
    odd = element(0, analytic=math.nan, numeric=-math.inf, error=math.nan, error_bar=math.inf, allowed=0.0)
    told = page(case(checks=(failing_check(findings=(finding(elements=(odd, element(1))),)),))).data[0]
    shown = told["checks"][0]["findings"][0]
    assert [text.strip() for text in shown["rows"][0][3:6]] == ["nan", "-inf", "nan"]
    cells = shown["picture"]["cells"]
    assert [(cell["analytic"], cell["numeric"], cell["error"]) for cell in cells] == [(None, None, None), (100, 0, 100)]


indices = st.tuples(st.integers(0, 300), st.integers(0, 20))
sizes = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(indices, indices, sizes, sizes), min_size=1, max_size=30))
def test_pictures_hold_any_numbers(entries: list[Any]) -> None:
    elements = tuple(
        element(0, output_index=out, input_index=into, analytic=said, numeric=found, error=abs(said - found))
        for out, into, said, found in entries
    )
    shown = picture_of(finding(elements=elements), elements)
    assert shown is not None
    assert len(element_rows(finding(), elements)) == len(elements)
    assert 1 <= len(shown.rows) <= 40 and 1 <= len(shown.columns) <= 60
    for cell in shown.cells:
        assert 0 <= cell.row < len(shown.rows) and 0 <= cell.column < len(shown.columns)
        there = elements[cell.element]
        for strength, value in (
            (cell.analytic, there.analytic),
            (cell.numeric, there.numeric),
            (cell.error, there.error),
        ):
            assert (strength is None) == (not math.isfinite(value))
            assert strength is None or (abs(strength) <= 100 and strength * value >= 0)


def test_sizes_far_apart_are_drawn_by_their_decades() -> None:
    elements = tuple(element(n, analytic=-(10.0**-n), numeric=0.0, error=10.0**-n) for n in range(7))
    shown = picture_of(finding(elements=elements), elements)
    assert shown is not None and shown.by_decades
    assert [cell.analytic for cell in shown.cells] == [-100, -85, -71, -56, -41, -27, -12]
    assert {cell.numeric for cell in shown.cells} == {0}


@pytest.mark.slow
def test_a_page_of_many_failures_stays_small() -> None:
    many = tuple(element(n) for n in range(5000))
    few = report(case(checks=(failing_check(findings=(finding(elements=many, total=9000),)),)))
    assert rows_per_finding(few) == 1000
    told = Page(to_html(few)).data[0]["checks"][0]["findings"][0]
    assert (len(told["rows"]), told["more"]) == (1000, "the worst 1,000 of 9,000 elements; the JSON report holds 5,000")
    bad = failing_check(findings=(finding(elements=many[:100], total=100),) * 3)
    crowd = report(*(case(f"a/{n}/cpu", checks=(bad,), verdict=Verdict.FAIL, as_expected=False) for n in range(2000)))
    assert rows_per_finding(crowd) == 5
    assert len(to_html(crowd)) < 20_000_000


@pytest.mark.slow
def test_two_thousand_cases_that_pass() -> None:
    text = to_html(report(*(case(f"a/{n}/cpu-float64") for n in range(2000))))
    assert len(text) < 5_000_000
    assert len(Page(text).with_class("case")) == 2000


def test_the_same_report_is_the_same_page() -> None:
    assert to_html(everything()) == to_html(everything())


def test_the_template_engine_is_loaded_only_when_a_page_is_made() -> None:
    program = "import sys, gradverify.cli.app; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
