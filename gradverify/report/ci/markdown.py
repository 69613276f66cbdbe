"""The report as Markdown, for the page of a job: what failed, its worst elements and causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradverify.problem import Problem, problems_of, said_once
from gradverify.report.case_lines import time_text
from gradverify.report.ci.escape import block, code, prose
from gradverify.report.ci.headline import note, remark
from gradverify.report.element_table import FULL, columns_of
from gradverify.report.reproduce import reproduce_command
from gradverify.report.screen import Screen
from gradverify.report.shards import missing_text
from gradverify.report.usage_text import asked_for_usage, usage_facts
from gradverify.report.words import counted
from gradverify.result import PRINTED, CaseResult, Finding, Report, Verdict

_CASES = 50  # told in full; a page of a job holds one megabyte
_PROBLEMS = 4  # told of one case
_ROWS = 5  # elements of one finding
_LONGEST = 1000  # characters of a message, and of what was printed


def to_markdown(report: Report) -> str:
    """Return a summary: counts, each case that is not as expected, and memory and time where they were asked for."""
    unexpected = [case for case in report.cases if not case.as_expected]
    rows = [f"## {_headline(report)}", "", *_counts(report.cases)]
    known = sum(case.known is not None for case in report.cases)
    rows += ["", f"The baseline knows {counted(known, 'failure')} of these."] if known else []
    for case in unexpected[:_CASES]:
        rows += ["", *_case(case)]
    if len(unexpected) > _CASES:
        rows += ["", f"… and {len(unexpected) - _CASES:,} more that are not as expected."]
    asked = asked_for_usage(report.cases)[:_CASES]
    rows += ["", "### Memory and time", "", *(f"- {code(case.id)}: {_usage(case)}" for case in asked)] if asked else []
    return "\n".join(rows) + "\n"


def _usage(case: CaseResult) -> str:
    return prose("; ".join(text for _, text in usage_facts(case)))


def _headline(report: Report) -> str:
    total, bad = counted(report.summary.cases, "case"), report.summary.unexpected
    missing = missing_text(report)
    told = f"{bad:,} of {total} not as expected" if bad else f"{total} as expected"
    told = f"✗ {missing}; {told}" if missing else f"{'✗' if bad else '✓'} {told}"
    return f"gradverify: {told} in {time_text(report.summary.seconds)}"


def _counts(cases: Sequence[CaseResult]) -> Iterator[str]:
    yield "| verdict | as expected | not as expected |"
    yield "|---|--:|--:|"
    for verdict in Verdict:
        found = [case.as_expected for case in cases if case.verdict is verdict]
        if found:
            yield f"| {verdict.value} | {found.count(True) or ''} | {found.count(False) or ''} |"


def _case(case: CaseResult) -> Iterator[str]:
    yield f"### ✗ {case.verdict.value} {code(case.id)}"
    yield ""
    yield ", ".join(_origin(case))
    if told := remark(case):
        yield from ("", f"Also: {prose(told[:_LONGEST])}")
    if told := note(case):
        yield from ("", f"Note: {prose(told[:_LONGEST])}")
    problems = said_once(problems_of(case))
    for problem in problems[:_PROBLEMS]:
        yield from ("", *_problem(problem))
    if len(problems) > _PROBLEMS:
        yield from ("", f"… and {counted(len(problems) - _PROBLEMS, 'more finding')}.")
    if command := reproduce_command(case):
        yield from ("", *block(command))


def _origin(case: CaseResult) -> Iterator[str]:
    if case.spec:
        yield code(f"{case.spec}:{case.line}")
    yield code(case.function)
    if case.source:
        yield f"backward at {code(f'{case.source.file}:{case.source.line}')}"


def _problem(problem: Problem) -> Iterator[str]:
    says, _, more = _cut(problem.message).partition("\n")
    name = " ".join(part for part in (problem.check, problem.code) if part)
    yield f"**{prose(name)}**: {prose(says)}" if name else prose(says)
    finding = problem.finding
    if finding and finding.elements:
        yield from ("", *_elements(finding))
    if finding and finding.cause:
        yield from ("", f"Cause **{prose(finding.cause)}**: {prose(' '.join(more.split()))}".rstrip(": "))
    elif more.strip():
        yield from ("", *block(more))


def _cut(message: str) -> str:
    """Return the beginning of what is said, and the end of what was printed: that is next to what went wrong."""
    says, mark, printed = message.partition(PRINTED)
    if len(printed) > _LONGEST:
        printed = printed[-_LONGEST:].partition("\n")[2] or printed[-_LONGEST:]  # whole lines, where there are any
    return says[:_LONGEST] + mark + printed


def _elements(finding: Finding) -> Iterator[str]:
    shown = finding.elements[:_ROWS]
    columns = columns_of(finding, shown, Screen(), FULL)
    yield "".join(f"| {column.title.strip()} " for column in columns) + "|"
    yield "|---" * len(columns) + "|"
    for number in range(len(shown)):
        yield "".join(f"| {code(column.cells[number].strip())} " for column in columns) + "|"
    if finding.total > len(shown):
        yield ""
        yield f"… the worst {len(shown):,} of {finding.total:,}."
