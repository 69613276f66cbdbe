"""The report as JUnit XML, as Jenkins, GitLab and most other servers read it: one case is one testcase."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree as Xml

from gradverify.report.ci.headline import details, headline
from gradverify.report.numbers import added_up
from gradverify.result import PRINTED, CaseResult, Report, Verdict

# What XML 1.0 cannot hold, not even escaped.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_junit(report: Report) -> str:
    """Return the report as JUnit XML with a suite per spec; expected failures are passes."""
    counts = _counts(report.cases)
    root = Xml.Element("testsuites", {"name": "gradverify", **counts, "time": _seconds(report.summary.seconds)})
    for spec, cases in groupby(report.cases, key=lambda case: case.spec):
        root.append(_suite(spec or "gradverify", tuple(cases)))
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _suite(name: str, cases: Sequence[CaseResult]) -> Xml.Element:
    time = _seconds(added_up(case.seconds for case in cases))
    skipped = str(sum(_tag(case) == "skipped" for case in cases))
    suite = Xml.Element("testsuite", {"name": _legal(name), **_counts(cases), "skipped": skipped, "time": time})
    suite.extend(_testcase(case) for case in cases)
    return suite


def _testcase(case: CaseResult) -> Xml.Element:
    made = Xml.Element(
        "testcase", name=_legal(case.id), classname=_legal(case.function or case.spec), time=_seconds(case.seconds)
    )
    tag = _tag(case)
    if tag == "skipped":
        Xml.SubElement(made, tag, message=_legal(case.message))
    elif tag:
        outcome = Xml.SubElement(made, tag, message=_legal(headline(case)), type=case.verdict.value)
        outcome.text = _legal(details(case))
    _, mark, printed = case.message.partition(PRINTED)
    if mark:
        Xml.SubElement(made, "system-out").text = _legal(printed)
    return made


def _tag(case: CaseResult) -> str:
    """Return the element that says how a case came out, "" for a pass, which has none."""
    if case.as_expected:
        return "skipped" if case.verdict is Verdict.SKIP else ""
    return "error" if case.verdict is Verdict.ERROR else "failure"


def _counts(cases: Sequence[CaseResult]) -> dict[str, str]:
    tags = [_tag(case) for case in cases]
    return {"tests": str(len(tags)), "failures": str(tags.count("failure")), "errors": str(tags.count("error"))}


def _seconds(value: float) -> str:
    return f"{value if math.isfinite(value) else 0.0:.3f}"


def _legal(text: str) -> str:
    return _ILLEGAL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
