"""Everything a page tells about one case once it is opened: texts and numbers, in the order in which they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.problem import own_message
from gradverify.report.page.check_details import CheckDetails, check_details
from gradverify.report.page.explored import ExploredDetails, explored_details
from gradverify.report.page.texts import one_line, parted
from gradverify.report.reproduce import reproduce_command
from gradverify.report.uncovered_text import uncovered_facts, uncovered_of
from gradverify.report.usage_text import usage_facts
from gradverify.result import CaseResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetails:
    facts: tuple[tuple[str, str], ...]  # what is asked about the case, and the answer
    message: str
    output: str  # what followed the message's first line: the end of what was printed, or a traceback
    checks: tuple[CheckDetails, ...]
    explored: ExploredDetails | None  # None where the inputs were not changed
    reproduce: str  # "" where there is no spec to run


def case_details(case: CaseResult, most_rows: int) -> CaseDetails:
    """Return the details of a case with at most so many elements per finding."""
    message, output = parted(own_message(case))
    return CaseDetails(
        facts=tuple(_facts(case)),
        message=message,
        output=output,
        checks=tuple(check_details(check, most_rows) for check in case.checks),
        explored=None if case.explored is None else explored_details(case.explored, most_rows),
        reproduce=reproduce_command(case),
    )


def _facts(case: CaseResult) -> list[tuple[str, str]]:
    facts = [("function", one_line(case.function))]
    facts += [("spec", f"{one_line(case.spec)}:{case.line}")] if case.spec else []
    facts += [("backward", f"{one_line(case.source.file)}:{case.source.line}")] if case.source else []
    facts += [("device", one_line(case.device)), ("dtype", one_line(case.dtype))]
    facts += [("seed", f"{case.seed}, sample {case.sample}" if case.sample else f"{case.seed}")]
    facts += [("note", one_line(case.note))] if case.note else []
    facts += [(name, one_line(text)) for name, text in (*usage_facts(case), *uncovered_facts(uncovered_of(case)))]
    return facts if case.expected is Verdict.PASS else [*facts, ("expected", case.expected.value)]
