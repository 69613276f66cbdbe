"""Everything a page tells about one case once it is opened: texts and numbers, in the order in which they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.report.checks_text import check_cost, check_counts, torch_differs
from gradverify.report.page.picture import Picture, picture_of
from gradverify.report.page.rows import Row, element_rows, row_names
from gradverify.report.page.texts import one_line, readable
from gradverify.report.reproduce import reproduce_command
from gradverify.report.uncovered_text import uncovered_facts
from gradverify.report.usage_text import usage_facts
from gradverify.report.words import counted
from gradverify.result import CaseResult, CheckResult, Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingDetails:
    code: str
    verdict: Verdict
    says: str  # one sentence
    rest: str  # what else was said, line by line; output and tracebacks stand here
    cause: str
    why: str  # what was measured of the cause
    columns: Row  # titles of the table
    rows: tuple[Row, ...]
    more: str  # how many elements are not shown, and where they are
    picture: Picture | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDetails:
    name: str
    verdict: Verdict
    answer: str  # one sentence, or what was counted
    rest: str  # what else was said, line by line
    cost: str  # method, limit of detection, calls
    torch: str
    torch_differs: bool
    findings: tuple[FindingDetails, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetails:
    facts: tuple[tuple[str, str], ...]  # what is asked about the case, and the answer
    message: str
    output: str  # what followed the message's first line: the end of what was printed, or a traceback
    checks: tuple[CheckDetails, ...]
    reproduce: str  # "" where there is no spec to run


def case_details(case: CaseResult, most_rows: int) -> CaseDetails:
    """Return the details of a case with at most so many elements per finding."""
    message, output = _parted(case.message)
    return CaseDetails(
        facts=tuple(_facts(case)),
        message=message,
        output=output,
        checks=tuple(_check(check, most_rows) for check in case.checks),
        reproduce=reproduce_command(case),
    )


def _facts(case: CaseResult) -> list[tuple[str, str]]:
    facts = [("function", one_line(case.function))]
    facts += [("spec", f"{one_line(case.spec)}:{case.line}")] if case.spec else []
    facts += [("backward", f"{one_line(case.source.file)}:{case.source.line}")] if case.source else []
    facts += [("device", one_line(case.device)), ("dtype", one_line(case.dtype))]
    facts += [("seed", f"{case.seed}, sample {case.sample}" if case.sample else f"{case.seed}")]
    facts += [(name, one_line(text)) for name, text in (*usage_facts(case), *uncovered_facts(case))]
    return facts if case.expected is Verdict.PASS else [*facts, ("expected", case.expected.value)]


def _check(check: CheckResult, most_rows: int) -> CheckDetails:
    said = any(check.message in finding.message for finding in check.findings)
    answer, rest = _parted(check_counts(check) if said or not check.message else check.message)
    return CheckDetails(
        name=one_line(check.check),
        verdict=check.verdict,
        answer=answer,
        rest=rest,
        cost=check_cost(check),
        torch=_torch(check),
        torch_differs=torch_differs(check),
        findings=tuple(_finding(finding, most_rows) for finding in check.findings),
    )


def _finding(finding: Finding, most_rows: int) -> FindingDetails:
    says, rest = _parted(finding.message)
    shown = finding.elements[:most_rows]
    return FindingDetails(
        code=one_line(finding.code),
        verdict=finding.verdict,
        says=_with_block(finding, says),
        rest="" if finding.cause else rest,
        cause=one_line(finding.cause or ""),
        why=rest if finding.cause else "",
        columns=row_names(finding),
        rows=element_rows(finding, shown),
        more=_more(finding, len(shown)),
        picture=picture_of(finding, shown),
    )


def _with_block(finding: Finding, says: str) -> str:
    """Name the block that a finding concerns where its sentence does not."""
    names = [one_line(name) for name in (finding.of, finding.wrt) if name]
    if not names or all(name in says for name in names):
        return says
    block = f"d {names[0]} / d {names[1]}" if len(names) == 2 else names[0]
    return f"{block}: {says}" if says else block


def _more(finding: Finding, shown: int) -> str:
    total, saved = max(finding.total, len(finding.elements)), len(finding.elements)
    if not shown or shown >= total:
        return ""
    where = f"run with --elements {total} to save all" if shown == saved else f"the JSON report holds {saved:,}"
    return f"the worst {shown:,} of {counted(total, 'element')}; {where}"


def _torch(check: CheckResult) -> str:
    if check.torch is None:
        return ""
    message = one_line(check.torch.message).rstrip(" ,:")
    text = f"torch.autograd.{one_line(check.torch.name)}: {check.torch.verdict.value}"
    return f"{text}: {message}" if message else text


def _parted(text: str) -> tuple[str, str]:
    first, _, rest = readable(text).partition("\n")
    return first, rest
