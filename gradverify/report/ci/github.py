"""What the runner of a GitHub job obeys: annotations for it, and text that it must not obey.

A runner takes every line that begins with `::`, and every line with `##[` in it, for a command. Text that is shown is
written so that neither occurs. `::stop-commands::` would do it for one of two streams only, and where a process is
killed before it lifts the ban, the ban stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradverify.problem import problems_of, said_once
from gradverify.report.ci.headline import note, remark, sentence
from gradverify.report.ci.places import Checkout, place_of
from gradverify.report.reproduce import reproduce_command
from gradverify.report.safe import safe
from gradverify.report.shards import missing_text
from gradverify.report.words import counted
from gradverify.result import CaseResult, Report

_MOST = 10  # errors of one step that GitHub shows
_PROBLEMS = 3  # told of one case
_LONGEST = 400  # characters of one problem
_COMMAND = re.compile(r"(?m)(^|\r)([^\S\r\n]*):(?=:)")
_IN_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_DATA, ":": "%3A", ",": "%2C"}


def workflow_commands(report: Report, checkout: Checkout) -> str:
    """Return an error for each of the first cases that are not as expected, and a count of the rest."""
    unexpected = [case for case in report.cases if not case.as_expected]
    missing = missing_text(report)
    rows = [f"::error title=gradverify::{missing}"] if missing else []
    rows += [_error(case, checkout) for case in unexpected[:_MOST]]
    if rest := unexpected[_MOST:]:
        is_are = "is" if len(rest) == 1 else "are"
        rows.append(f"::notice::{counted(len(rest), 'more case')} {is_are} not as expected")
    return "".join(f"{row}\n" for row in rows)


def inert(text: str) -> str:
    """Return text without anything that a runner obeys."""
    return _COMMAND.sub(r"\1\2: ", text).replace("##[", "## [")


def _error(case: CaseResult, checkout: Checkout) -> str:
    place = place_of(case, checkout)
    properties = {"file": place.file, "line": str(place.line)} if place and place.relative else {}
    properties["title"] = f"gradverify: {safe(case.id)}"
    told = ",".join(f"{name}={_escaped(safe(value), _IN_PROPERTY)}" for name, value in properties.items())
    return f"::error {told}::{_escaped(chr(10).join(_message(case)), _IN_DATA)}"


def _message(case: CaseResult) -> Iterator[str]:
    problems = said_once(problems_of(case))
    for problem in problems[:_PROBLEMS]:
        yield sentence(problem)[:_LONGEST]
    if len(problems) > _PROBLEMS:
        yield f"and {counted(len(problems) - _PROBLEMS, 'more finding')}"
    for told in filter(None, (remark(case), note(case))):
        yield told[:_LONGEST]
    if command := reproduce_command(case):
        yield f"reproduce: {command}"


def _escaped(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(character, character) for character in text)
