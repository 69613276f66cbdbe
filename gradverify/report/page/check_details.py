"""What a page tells about one check: its answer, and every finding with its cause, table and picture."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.report.checks_text import check_cost, check_counts, second_opinion, torch_differs
from gradverify.report.page.picture import Picture, picture_of
from gradverify.report.page.rows import Row, element_rows, row_names
from gradverify.report.page.texts import one_line, parted
from gradverify.report.words import counted
from gradverify.result import CheckResult, Finding, Verdict


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
    second_opinion: str  # what torch's own derivative agrees with
    findings: tuple[FindingDetails, ...]


def check_details(check: CheckResult, most_rows: int) -> CheckDetails:
    """Return the details of a check with at most so many elements per finding."""
    said = any(check.message in finding.message for finding in check.findings)
    answer, rest = parted(check_counts(check) if said or not check.message else check.message)
    return CheckDetails(
        name=one_line(check.check),
        verdict=check.verdict,
        answer=answer,
        rest=rest,
        cost=check_cost(check),
        torch=_torch(check),
        torch_differs=torch_differs(check),
        second_opinion=second_opinion(check),
        findings=tuple(_finding(finding, most_rows) for finding in check.findings),
    )


def _finding(finding: Finding, most_rows: int) -> FindingDetails:
    says, rest = parted(finding.message)
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
