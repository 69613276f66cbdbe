"""The section of a case's details about tries with other inputs, on the page and in a notebook."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from gradverify.report.notebook import case_html, exploration_html
from gradverify.report.page.to_html import to_html
from gradverify.result import CaseResult, Exploration, Side, Uncovered, Verdict
from tests.report.explored_on_page import discovery, exploration, explored_case
from tests.report.report_specimens import case, finding, report
from tests.report.test_page import HOSTILE, Page


def page(*cases: CaseResult) -> Page:
    return Page(to_html(report(*cases)))


def section(made: Exploration) -> Any:
    return page(explored_case(explored=made)).data[0]["explored"]


def test_section_has_each_failure_with_inputs_and_table() -> None:
    told = section(exploration())
    assert (told["verdict"], told["summary"]) == (
        "fail",
        "1,200 tries with other inputs, 1 failure, 1 extreme, 1 question",
    )
    (failure,) = told["failures"]
    assert failure["title"] == "found at try 9 of 1,200: stride: 1 (was 2), x: shape [1, 3] (was [2, 8])"
    assert failure["inputs"] == "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 1"
    assert failure["also"] == "4 later tries seem wrong in the same way"
    assert (failure["message"], failure["saved"]) == ("", "found/pool-stride.yaml")
    (shown,) = failure["checks"][0]["findings"]
    assert (shown["cause"], shown["why"]) == ("missing-broadcast-sum", "the sum is missing")
    assert (len(shown["rows"]), len(shown["picture"]["cells"])) == (2, 2)


def test_strict_extremes_are_shown_like_failures() -> None:
    told = section(exploration(strict=True))
    assert [failure["title"] for failure in told["failures"]] == [
        "found at try 9 of 1,200: stride: 1 (was 2), x: shape [1, 3] (was [2, 8])",
        "found at try 77 of 1,200: x: × 1e+08",
    ]
    assert [found["title"] for found in told["lists"]] == ["1 question", "1 lost try"]


def test_extremes_questions_and_lost_tries_are_short_lists() -> None:
    told = {found["title"]: found["lines"] for found in section(exploration())["lists"]}
    assert told == {
        "1 extreme": ["x: × 1e+08: 3 entries differ"],
        "1 question": ["x: a leading dimension of 2: forward runs and backward raises RuntimeError: shape mismatch"],
        "1 lost try": ["size: 0 (was 2): crashed with signal SIGABRT"],
    }


@pytest.mark.parametrize(
    ("made", "verdict", "summary"),
    [
        (Exploration(tries=1, budget=1), "pass", "1 try with other inputs"),
        (Exploration(tries=0, budget=9, message="a\nb"), "skip", "nothing was tried: a b"),
        (Exploration(tries=2, budget=9, lost=("a", "b")), "pass", "2 tries with other inputs"),
        (replace(exploration(lost=()), discoveries=exploration().extremes), "pass", None),
    ],
)
def test_verdict_and_summary_without_failures(made: Exploration, verdict: str, summary: str | None) -> None:
    told = section(made)
    assert told["verdict"] == verdict
    assert told["summary"] == (summary or "1,200 tries with other inputs, 1 extreme")
    assert told["failures"] == []


def test_inputs_without_a_form_in_yaml_are_said_to_have_none() -> None:
    made = exploration(discoveries=(discovery(inputs="", spec="", checks=()),))
    (failure,) = section(made)["failures"]
    assert failure["inputs"] == "the spec language has no form for these inputs"
    assert failure["message"] == "2 entries of d y / d x differ"


def test_listing_shows_the_change_and_can_be_searched_by_cause_and_code() -> None:
    found = page(explored_case())
    texts = [text for inside, text in found.texts if inside == "span"]
    assert "found at try 9 of 1,200: stride: 1 (was 2), x: shape [1, 3] (was [2, 8])" in texts
    assert "✗ explore 1,200 tries" in texts
    assert "gradcheck: missing-broadcast-sum" in texts
    assert "GV101" in (found.with_class("case")[0]["data-words"] or "")
    assert "explain-missing-broadcast-sum" in [attributes.get("id") for _, attributes in found.elements]


def test_message_is_not_repeated_above_the_failure() -> None:
    assert page(explored_case()).data[0]["message"] == ""
    told = explored_case(message=f"{explored_case().message}; gradcheck was expected to fail")
    assert page(told).data[0]["message"] == "gradcheck was expected to fail"


def test_case_without_exploration_has_no_section() -> None:
    assert page(case()).data[0]["explored"] is None
    assert "explore" not in "".join(text for inside, text in page(case()).texts if inside == "span")


def test_not_exercised_is_what_no_try_exercised() -> None:
    own = Uncovered(file="pool.py", line=3, within="forward", text="x < 0", never=Side.TRUE)
    told = page(explored_case(uncovered=(own,))).data[0]["facts"]
    assert [fact for name, fact in told if name == "not exercised"] == [
        "`x > 6` in forward at pool.py:14 was never true"
    ]
    untried = explored_case(uncovered=(own,), explored=Exploration(tries=0, budget=9, message="backward is wrong"))
    told = page(untried).data[0]["facts"]
    assert [fact for name, fact in told if name == "not exercised"] == [
        "`x < 0` in forward at pool.py:3 was never true"
    ]


def hostile_exploration() -> Exploration:
    """Return an exploration in which every text is the same attempt to become markup."""
    text = f"{HOSTILE}\n{HOSTILE}"
    found = finding(code=HOSTILE, of=HOSTILE, wrt=HOSTILE, message=text, cause=HOSTILE)
    made = exploration(lost=(text,))
    checks = tuple(replace(check, check=HOSTILE, message=text, findings=(found,)) for check in discovery().checks)
    return replace(
        made,
        message="",
        uncovered=tuple(replace(entry, text=text, file=HOSTILE, within=HOSTILE) for entry in made.uncovered),
        discoveries=tuple(
            replace(each, changes=(text, text), inputs=text, spec=text, saved=text, message=text, checks=checks)
            for each in (*made.discoveries, discovery(checks=()))
        ),
    )


def test_text_of_others_stays_text() -> None:
    text = to_html(report(explored_case(explored=hostile_exploration(), message=HOSTILE)))
    found = Page(text)
    assert text.lower().count("</script") == 2  # one for the case, and the page's own
    assert "img" not in [tag for tag, _ in found.elements]
    told = found.data[0]["explored"]
    assert told["failures"][0]["inputs"] == f"{HOSTILE}\n{HOSTILE}"
    assert told["failures"][0]["title"].endswith(f"{HOSTILE} {HOSTILE}, {HOSTILE} {HOSTILE}")
    assert told["lists"][2]["lines"] == [f"{HOSTILE} {HOSTILE}"]


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("&ensp;", " ").replace("<br>", "<br/>"))


def test_notebook_shows_failures_with_tables_and_heat_maps() -> None:
    shown = parsed(exploration_html(exploration()))
    first, *_ = shown.findall("p")
    assert "".join(first.itertext()) == "explore 1,200 tries with other inputs, 1 failure, 1 extreme, 1 question"
    assert shown.findtext("pre") == "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 1"
    assert len(shown.findall(".//svg")) == 3
    assert len(shown.findall("./div/table/tbody/tr")) == 2
    assert len(shown.findall("./ul/li")) == 3
    assert "`x > 6` in forward at pool.py:14 was never true" in "".join(shown.itertext())


def test_notebook_of_a_case_shows_its_exploration() -> None:
    shown = "".join(parsed(case_html(explored_case())).itertext())
    assert "explore 1,200 tries with other inputs, 1 failure" in shown
    assert "explore" not in case_html(case())


def test_notebook_escapes_text_of_the_user() -> None:
    shown = exploration_html(hostile_exploration())
    assert "<script" not in shown and "<img" not in shown
    assert "49" not in shown
    assert "".join(parsed(shown).itertext()).count("<img src=x onerror='hit()'>") > 8


def test_notebook_of_an_exploration_without_tries() -> None:
    shown = parsed(exploration_html(Exploration(tries=0, budget=9, message="backward is wrong")))
    assert "".join(shown.itertext()).strip() == "explore nothing was tried: backward is wrong"


def test_verdict_of_the_case_decides_its_group() -> None:
    right = explored_case(verdict=Verdict.PASS, as_expected=True, message="", explored=Exploration(tries=3, budget=3))
    groups = [group.get("class") for group in page(right, explored_case()).with_class("group")]
    assert groups[:2] == ["group bad", "group good"]
