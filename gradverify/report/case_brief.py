"""A case that is not as expected in about a dozen lines: each failed check's worst finding, and how to see the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradverify.problem import Problem, own_message, problems_of_check, said_once
from gradverify.report.case_detail import FIRST_DERIVATIVE_FIRST, block_named, cause_lines, is_second_to, origin_parts
from gradverify.report.element_table import element_table
from gradverify.report.explored_text import discovery_lines, saving_lines
from gradverify.report.lines import DIM, EMPTY, Line, cells, indented, line, span
from gradverify.report.reproduce import always_quoted, command_lines, is_of_command, reproduce_command
from gradverify.report.safe import fold, safe, shortened
from gradverify.report.screen import Screen, narrowed
from gradverify.report.words import badge_of, counted, heading
from gradverify.result import PRINTED, WORST_FIRST, AgreesWith, CaseResult, CheckResult, Finding

_INDENT = 2
_CHECKS = 3  # failed checks whose finding is shown
_SENTENCE = 2  # lines of a finding's message
_WITHOUT_TABLE = 5  # lines of the worst finding's message, if no table stands under it
_BLOCKS = 2  # lines that name the other blocks of the worst check
_MESSAGE = 3  # lines of the case's own message, and of the end of what the case had printed
_INPUT = 2  # lines of one input of a discovery
_ROWS = 3  # worst elements
_TABLE = 6  # lines of their table, where an element takes more than one
_AGREES = "torch's own derivative of the forward agrees with analytic"
_WORST = "; worst "  # a message goes on with the worst element, which is the first row of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Lines about one thing, and what they leave out."""

    rows: tuple[Line, ...]
    elements: int = 0  # wrong elements that are not shown
    cut: bool = False  # True where a text goes on


def case_brief(case: CaseResult, screen: Screen) -> list[Line]:
    """Return where the case stands, what failed, the cause, and the commands for the rest; no blank line inside."""
    inner = narrowed(screen, _INDENT)
    problems = said_once(problem for check in case.checks for problem in problems_of_check(check))
    heads = _worst_of_each_check(problems)
    parts = [_message(case, inner), *_failed(case, heads, problems, inner), *_discovered(case, inner)]
    rows = [_origin(case, inner), *_note(case, inner), *(row for part in parts for row in part.rows)]
    rows += _more(case, parts, len(problems) - len(heads[:_CHECKS]), inner)
    command = reproduce_command(case)
    rows += command_lines("reproduce:", command, inner.width) if command else []
    rows += saving_lines(case, inner.width)
    return [heading(case, safe(case.id), screen), *indented(filter(None, rows), _INDENT)]


def _failed(case: CaseResult, heads: Sequence[Problem], problems: Sequence[Problem], screen: Screen) -> list[_Part]:
    """Return the checks that failed, the worst one with elements: the fewer, the more checks there are to show."""
    if not heads:
        return []
    worst, *others = heads[:_CHECKS]
    lines = _SENTENCE if len(others) < 2 else 1
    parts = [_first(worst, _ROWS - len(others), screen), _blocks_beside(worst, problems, screen)]
    parts += [_Part(rows=(line(" " * _INDENT, _AGREES),))] if _torch_agrees(case, worst) else []
    parts += [
        _second(each, screen) if is_second_to(case, each.check) else _other(each, lines, screen) for each in others
    ]
    return [*parts, _names(heads[_CHECKS:], screen)] if len(heads) > _CHECKS else parts


def _torch_agrees(case: CaseResult, problem: Problem) -> bool:
    """True if torch's own derivative agrees with backward: then the forward may be what is wrong."""
    found = next((check.torch_derivative for check in case.checks if check.check == problem.check), None)
    return found is not None and found.agrees_with is AgreesWith.ANALYTIC


def _discovered(case: CaseResult, screen: Screen) -> list[_Part]:
    """Return what was found at other inputs, each with the worst problem there."""
    told: list[_Part] = []
    parts: list[_Part] = []

    def worst_of(check: CheckResult, inner: Screen) -> list[Line]:
        problems = said_once(problems_of_check(check))
        told[:] = [_first(problems[0], _ROWS, inner), _blocks_beside(problems[0], problems, inner)]
        return [row for part in told for row in part.rows]

    for found in case.explored.failing if case.explored is not None else ():
        rows = discovery_lines(case, found, screen, _INPUT, worst_of)
        cut = any(part.cut for part in told)
        parts.append(_Part(rows=tuple(rows), elements=sum(part.elements for part in told), cut=cut))
    return parts


def _worst_of_each_check(problems: Sequence[Problem]) -> list[Problem]:
    """Return one problem per check, or per group of checks that say the same; a proven fail comes first."""
    heads: dict[str | None, Problem] = {}
    for problem in sorted(problems, key=lambda problem: WORST_FIRST.index(problem.verdict)):
        heads.setdefault(problem.check, problem)
    return list(heads.values())


def _origin(case: CaseResult, screen: Screen) -> Line:
    """Return where the case stands and where its backward is, on one line: without the function where it is long."""
    places, function, source = origin_parts(case)
    texts = [", ".join(filter(None, parts)) for parts in ((places, function, source), (places, source))]
    text = next((text for text in texts if cells(text) <= screen.width), source or places)
    return line(span(safe(text), DIM)) if text else EMPTY


def _note(case: CaseResult, screen: Screen) -> list[Line]:
    kept, _ = _limited(fold(safe(case.note), screen.width), _SENTENCE, screen) if case.note else ((), False)
    return [line(span(row, DIM)) for row in kept]


def _message(case: CaseResult, screen: Screen) -> _Part:
    """Return the case's own message; of what it had printed before it ended, the last lines."""
    says, _, printed = own_message(case).partition(PRINTED)
    kept, cut = _limited(fold(says, screen.width), _MESSAGE, screen) if says else ((), False)
    output = fold(printed, screen.width) if printed else []
    mark = [screen.glyphs.ellipsis] if len(output) > _MESSAGE else []
    rows = tuple(map(line, [*kept, *mark, *output[-_MESSAGE:]]))
    return _Part(rows=rows, cut=cut or bool(mark))


def _first(problem: Problem, most: int, screen: Screen) -> _Part:
    """Return the worst problem with its worst elements and its cause."""
    finding = problem.finding
    if finding is None or not finding.elements:
        return _sentence(problem, problem.message, _WITHOUT_TABLE, screen)
    inner = narrowed(screen, _INDENT)
    shown, table = _table(finding, most, inner)
    says, _, why = problem.message.partition("\n") if finding.cause else (problem.message, "", "")
    told = _sentence(problem, says.partition(_WORST)[0] if table else says, _SENTENCE + 1, screen)
    cause = cause_lines(finding.cause, why, inner) if finding.cause else []
    rows = (*told.rows, *indented([*table, *cause], _INDENT))
    return _Part(rows=rows, elements=_elements(finding) - shown, cut=told.cut)


def _blocks_beside(worst: Problem, problems: Sequence[Problem], screen: Screen) -> _Part:
    """Return the other blocks of the Jacobian that the same check finds wrong."""
    found = [
        f"d {each.finding.of} / d {each.finding.wrt} in {counted(each.finding.total, 'entry', 'entries')}"
        for each in problems
        if each is not worst and each.check == worst.check and each.verdict is worst.verdict
        if each.finding and each.finding.elements and each.finding.of and each.finding.wrt
    ]
    rows, cut = _limited(fold(safe(f"also {', '.join(found)}"), screen.width - _INDENT), _BLOCKS, screen)
    return _Part(rows=tuple(indented(map(line, rows), _INDENT)) if found else (), cut=bool(found) and cut)


def _second(problem: Problem, screen: Screen) -> _Part:
    """Return one line for a second derivative that is wrong beside a wrong first derivative."""
    return _sentence(replace(problem, code=None, finding=None), FIRST_DERIVATIVE_FIRST, 1, screen)


def _other(problem: Problem, most: int, screen: Screen) -> _Part:
    """Return a problem beside the worst one: its sentence in at most `most` lines, and the name of its cause."""
    finding = problem.finding
    if finding is None or not finding.cause:
        told = _sentence(problem, problem.message, most, screen)
    else:
        says = problem.message.partition("\n")[0]
        told = _sentence(problem, f"cause {finding.cause}: {says}", most, screen)
    return replace(told, elements=_elements(finding) if finding else 0)


def _elements(finding: Finding) -> int:
    """Return how many elements a finding has; 0 where its total counts something else."""
    return max(finding.total, len(finding.elements)) if finding.elements else 0


def _names(problems: Sequence[Problem], screen: Screen) -> _Part:
    """Return the checks that failed besides those shown, with their codes."""
    names = ", ".join(" ".join(filter(None, (problem.check, problem.code))) for problem in problems)
    return _Part(rows=tuple(map(line, fold(f"also failed: {safe(names)}", screen.width))))


def _sentence(problem: Problem, says: str, most: int, screen: Screen) -> _Part:
    """Return the check, the code and as much of the message as a few lines hold."""
    badge = badge_of(problem.verdict, screen.glyphs)
    lead = " ".join(filter(None, (badge.symbol, problem.check, problem.code)))
    text = block_named(problem.finding, says) if problem.finding else says
    (first, *rest), cut = _limited(fold(f"{lead}: {text}", screen.width - _INDENT), most, screen)
    styled = line(span(lead, badge.style), first.removeprefix(lead)) if first.startswith(lead) else line(first)
    return _Part(rows=(styled, *(line(" " * _INDENT, row) for row in rest)), cut=cut)


def _limited(rows: Sequence[str], most: int, screen: Screen) -> tuple[list[str], bool]:
    """Return at most `most` rows, the last marked where the text goes on, and whether it does."""
    if len(rows) <= most:
        return [*rows], False
    rest = " ".join(rows[most - 1 :])
    last = shortened(rest, screen.width - _INDENT, screen.glyphs.ellipsis)
    return [*rows[: most - 1], last], last != rest


def _table(finding: Finding, most: int, screen: Screen) -> tuple[int, list[Line]]:
    """Return how many elements are shown, at most `most`, and their table: fewer where one takes several lines."""
    for count in range(min(most, len(finding.elements)), 0, -1):
        table = element_table(finding, finding.elements[:count], screen)
        if len(table) <= _TABLE:
            return count, table
    return 0, []


def _more(case: CaseResult, parts: Sequence[_Part], findings: int, screen: Screen) -> list[Line]:
    """Return how much is not shown, with the command that shows it."""
    elements = sum(part.elements for part in parts)
    counts = [counted(elements, "more element")] if elements else []
    counts += [counted(findings, "more finding")] if findings else []
    if not counts and not any(part.cut for part in parts):
        return []
    lead = f"{screen.glyphs.ellipsis} {' and '.join(counts) or 'the whole message'}:"
    if not is_of_command(case):  # there is no run to look at again
        return [line(span(lead.removesuffix(":"), DIM))]
    return command_lines(lead, f"gradverify inspect {always_quoted(safe(case.id))}", screen.width, DIM)
