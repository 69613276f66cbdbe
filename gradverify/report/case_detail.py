"""What is wrong with one case: every finding with its worst elements, its cause, and how to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradverify.problem import own_message
from gradverify.report.checks_text import check_cost, check_counts, second_opinion, torch_differs
from gradverify.report.element_table import element_table, named
from gradverify.report.explored_text import (
    discovery_lines,
    explored_counts,
    explored_verdict,
    remark_lines,
    saving_lines,
)
from gradverify.report.lines import BAD, DIM, EMPTY, HEAD, WARN, Line, cells, indented, line, plain, span
from gradverify.report.reproduce import always_quoted, command_lines, is_of_command, reproduce_command
from gradverify.report.safe import fold, safe
from gradverify.report.screen import Detail, Screen, narrowed
from gradverify.report.usage_text import usage_lines
from gradverify.report.words import badge_of, badge_span, counted, heading
from gradverify.result import CaseResult, CheckResult, Element, Finding, Verdict

FIRST_DERIVATIVE_FIRST = "fix the first derivative first"  # of a second derivative that is wrong too
_INDENT = 2
_INPUT = 6  # lines of one input of a discovery
_NAMED = 3  # elements that are named beside a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailOptions:
    """How much of a case is shown."""

    detail: Detail = Detail.NORMAL
    rows: int | None = 10  # elements per finding, None for all that the report holds
    reasons: bool = False  # why each of them has its verdict


def case_detail(case: CaseResult, screen: Screen, options: DetailOptions) -> list[Line]:
    """Return everything there is to say about a case; no blank line at either end."""
    rows = [heading(case, safe(case.id), screen), *indented(origin_lines(case, screen.width - _INDENT), _INDENT)]
    if message := own_message(case):
        rows += indented(_prose(message, screen.width - _INDENT), _INDENT)
    for group in alike([check for check in case.checks if _speaks(check, options.detail)]):
        rows += [EMPTY, *indented(_check(case, group, screen, options), _INDENT)]
    for part in explored_parts(case, screen, options):
        rows += [EMPTY, *indented(part, _INDENT)]
    usage = usage_lines(case, screen.width - _INDENT)
    rows += [EMPTY, *indented(usage, _INDENT)] if usage else []
    command = reproduce_command(case)
    if command and not case.as_expected:
        rows += [EMPTY, *indented(command_lines("reproduce:", command, screen.width - _INDENT), _INDENT)]
        rows += indented(saving_lines(case, screen.width - _INDENT), _INDENT)
    return rows


def speaking(cases: Sequence[CaseResult], detail: Detail) -> list[CaseResult]:
    """Return the cases whose details are shown."""
    if detail is Detail.VERBOSE:
        return [case for case in cases if not case.as_expected or case.verdict is not Verdict.SKIP]
    return [case for case in cases if not case.as_expected]


def finding_lines(case: CaseResult, finding: Finding, screen: Screen, options: DetailOptions) -> list[Line]:
    """Return a finding: what it says, its worst elements, and under them the cause that was measured.

    Where there is a cause, the message's first line says what is wrong and the others explain the cause.
    """
    shown = finding.elements[: options.rows]
    says, _, why = finding.message.partition("\n") if finding.cause else (finding.message, "", "")
    rows = _title(finding, says, screen)
    rows += element_table(finding, shown, screen)
    rows += _not_shown(case, finding, len(shown), screen)
    rows += _reasons(finding, shown, screen) if options.reasons else []
    return rows + (cause_lines(finding.cause, why, screen) if finding.cause else [])


def explored_parts(case: CaseResult, screen: Screen, options: DetailOptions) -> list[list[Line]]:
    """Return the parts about other inputs: each discovery that fails the case, then counts and remarks."""
    if case.explored is None:
        return []

    def checks(check: CheckResult, inner: Screen) -> list[Line]:
        return _check(case, [check], inner, options)

    inner = narrowed(screen, _INDENT)
    parts = [discovery_lines(case, found, inner, _INPUT, checks) for found in case.explored.failing]
    badge = badge_span(badge_of(explored_verdict(case.explored), screen.glyphs))
    first, *rest = fold(explored_counts(case.explored), inner.width - cells(f"explore: {badge.text}  "))
    counts = [line(span("explore: ", HEAD), badge, f"  {first}"), *(line("  ", row) for row in rest)]
    return [*parts, [*counts, *indented(remark_lines(case.explored, inner.width - _INDENT), _INDENT)]]


def origin_lines(case: CaseResult, width: int) -> list[Line]:
    """Return where a case stands, what it is about, where its backward is, and the note about the point."""
    places = ", ".join(filter(None, origin_parts(case)))
    return [line(span(row, DIM)) for text in (places, case.note) if text for row in fold(safe(text), width)]


def origin_parts(case: CaseResult) -> tuple[str, str, str]:
    """Return the place in the spec, the function, and the place of its backward; "" for those not known."""
    spec = f"{case.spec}:{case.line}" if case.spec else ""
    return spec, case.function, f"backward at {case.source.file}:{case.source.line}" if case.source else ""


def block_named(finding: Finding, says: str) -> str:
    """Return what a finding says, with the block that it concerns where the sentence does not name it."""
    names = [name for name in (finding.of, finding.wrt) if name]
    block = f"d {finding.of} / d {finding.wrt}" if len(names) == 2 else "".join(names)
    return says if all(name in says for name in names) else f"{block}: {says}" if says else block


def cause_lines(cause: str, why: str, screen: Screen) -> list[Line]:
    """Return the name of a cause, and how it explains what is wrong."""
    name = f"cause {safe(cause)}"
    text = fold(f"{name}: {why}" if why else name, screen.width)
    if not text[0].startswith(name):
        return [line(row) for row in text]
    return [line(span(name, WARN), text[0].removeprefix(name)), *map(line, text[1:])]


def alike(checks: Sequence[CheckResult]) -> list[list[CheckResult]]:
    """Return the checks in their order, in one group those that say the same: that forward raises, all find out."""
    groups: dict[object, list[CheckResult]] = {}
    for number, check in enumerate(checks):
        said = [(finding.code, finding.message) for finding in check.findings if not finding.elements]
        one = len(said) == len(check.findings) == 1 and not torch_differs(check)
        groups.setdefault((check.verdict, *said) if one else number, []).append(check)
    return list(groups.values())


def names_of(group: Sequence[CheckResult]) -> str:
    """Return the names of checks that say the same."""
    return ", ".join(check.check for check in group)


def is_second_to(case: CaseResult, check: str | None) -> bool:
    """Return True if `check` is a failed gradgradcheck and the first derivative is wrong too."""
    failed = {each.check for each in case.checks if each.verdict is Verdict.FAIL}
    return check == "gradgradcheck" and {"gradcheck", "gradgradcheck"} <= failed


def _speaks(check: CheckResult, detail: Detail) -> bool:
    if check.verdict is Verdict.SKIP and check.message:
        return True
    return detail is Detail.VERBOSE or check.verdict not in (Verdict.PASS, Verdict.SKIP) or torch_differs(check)


def _check(case: CaseResult, group: Sequence[CheckResult], screen: Screen, options: DetailOptions) -> list[Line]:
    inner = narrowed(screen, _INDENT)
    check = replace(group[0], check=names_of(group))
    if options.detail is not Detail.VERBOSE and is_second_to(case, check.check):
        more = "; -v shows the second" if is_of_command(case) else ""
        return _answer(replace(check, message=f"{FIRST_DERIVATIVE_FIRST}{more}", findings=()), inner)
    rows = _answer(check, inner)
    for finding in check.findings:
        rows += indented(finding_lines(case, finding, narrowed(inner, _INDENT), options), _INDENT)
    rows += _torch(check, inner)
    rows += _prose(second_opinion(check), inner.width)
    quiet = len(group) > 1 or (check.verdict is Verdict.SKIP and options.detail is not Detail.VERBOSE)
    cost = "" if quiet else check_cost(check)
    return rows + ([line(span(row, DIM)) for row in fold(cost, inner.width)] if cost else [])


def _answer(check: CheckResult, screen: Screen) -> list[Line]:
    head = line(span(f"{check.check}: ", HEAD), badge_span(badge_of(check.verdict, screen.glyphs)))
    said = any(check.message in finding.message for finding in check.findings)
    words = check_counts(check) if said or not check.message else check.message
    rows = fold(words, screen.width)
    if len(rows) == 1 and cells(f"{plain(head)}  {rows[0]}") <= screen.width:
        return [line(*head, f"  {rows[0]}" if words else "")]
    return [head, *map(line, rows)]


def _title(finding: Finding, says: str, screen: Screen) -> list[Line]:
    """Return a finding's code and sentence."""
    text = block_named(finding, says)
    lead = cells(finding.code) + 2
    first, *rest = fold(text, screen.width - lead)
    code = span(finding.code, BAD if finding.verdict is Verdict.FAIL else HEAD)
    return [line(code, "  ", first), *(line(" " * lead, row) for row in rest)]


def _reasons(finding: Finding, elements: Sequence[Element], screen: Screen) -> list[Line]:
    """Return each reason for the verdicts on some elements, with the first elements that it holds for."""
    held: dict[str, list[str]] = {}
    for element in elements:
        if element.reason:
            output = named(finding.of or "output", element.output_index)
            place = f"{output} by {named(finding.wrt or 'input', element.input_index)}"
            held.setdefault(element.reason, []).append(safe(place))
    rows = []
    for reason, found in held.items():
        more = f" and {counted(len(found) - _NAMED, 'more element')}" if len(found) > _NAMED else ""
        where = f": {', '.join(found[:_NAMED])}{more}" if len(held) > 1 else ""
        rows += [line(row) for row in fold(f"why: {reason}{where}", screen.width)]
    return rows


def _not_shown(case: CaseResult, finding: Finding, shown: int, screen: Screen) -> list[Line]:
    total, saved = max(finding.total, len(finding.elements)), len(finding.elements)
    if not saved or shown >= total:
        return []
    if not is_of_command(case):  # there is no run to look at again
        text = f"{screen.glyphs.ellipsis} the worst {shown} of {total:,}; the result holds {saved:,}"
        return [line(span(row, DIM)) for row in fold(text, screen.width)]
    command = f"gradverify inspect {always_quoted(safe(case.id))} --all"
    if shown == saved:
        command = f"gradverify {'run' if case.explored is None else 'explore'} --elements {total}"
    lead = f"{screen.glyphs.ellipsis} the worst {shown:,} of {total:,}, more with"
    return command_lines(lead, command, screen.width, DIM)


def _torch(check: CheckResult, screen: Screen) -> list[Line]:
    if not check.torch or not torch_differs(check):
        return []
    message = check.torch.message.rstrip(" ,:")
    why = f": {message}" if message else ""
    text = f"torch.autograd.{check.torch.name} says {check.torch.verdict.value}{why}"
    return [line(span(row, WARN)) for row in fold(text, screen.width)]


def _prose(text: str, width: int) -> list[Line]:
    return [line(row) for row in fold(text, width)] if text else []
