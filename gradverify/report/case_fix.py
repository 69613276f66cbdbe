"""A case that is not as expected in at most 15 lines, for a program that mends it: the cause first, then the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import dedent

from gradverify.catalogue import Section, section_of, sections
from gradverify.problem import Problem, problems_of, said_once
from gradverify.report.case_detail import block_named, cause_lines
from gradverify.report.element_table import element_table
from gradverify.report.lines import Line, indented, line
from gradverify.report.reproduce import command_lines, reproduce_command
from gradverify.report.safe import fold, safe, shortened
from gradverify.report.screen import Screen, narrowed
from gradverify.report.words import badge_span, case_badge
from gradverify.result import WORST_FIRST, CaseResult, Finding, Verdict

MOST = 15  # lines of one case
_INDENT = 2
_CAUSE = 3  # lines
_SENTENCE = 2  # lines
_ROWS = 2  # worst elements
_TABLE = 4  # lines of their table; fewer elements are shown where one takes several lines
_NOTE = 2  # lines about the point; the first one stands in place of one of the table
_FIX = 6  # lines of the fix
# Backward writes to its cotangent, and so to what it has returned for another input; draws other random numbers; keeps
# its tensors elsewhere than in ctx; returns uninitialised memory. A cause found in such numbers may be any.
_EXPLAIN_OTHERS = ("GV306", "GV407", "GV408", "GV409")


def case_fix(case: CaseResult, screen: Screen) -> list[Line]:
    """Return the cause, the fix, where backward is, the worst elements, and the command that repeats the case.

    A note about the point stands under the place of backward.

    At most `MOST` lines, none of them empty. The fix is the mended example of the page of the cause, or of the code if
    no cause was named. Only the command that prints the page is shown if the example is too long. There is no fix if no
    cause was named and the page of the code mends its own example only.
    """
    inner = narrowed(screen, _INDENT)
    worst, *others = sorted(said_once(problems_of(case)), key=_rank)
    badge = case_badge(case, screen.glyphs)
    head, rest = _cause(worst, inner), _evidence(case, worst, others, inner)
    note = _note(case, min(_NOTE, MOST - 2 - len(head) - len(rest)), inner)
    place = int(case.source is not None)
    rest = [*rest[:place], *note, *rest[place:]]
    room = min(_FIX, MOST - 1 - len(head) - len(rest))
    rows = [*head, *_fix(worst, room, inner), *rest]
    return [line(badge_span(badge), "  ", safe(case.id)), *indented(rows, _INDENT)]


def as_expected_lines(cases: Sequence[CaseResult], screen: Screen) -> list[Line]:
    """Return one line with the ids of the cases that are as expected, as many as it holds; none without such cases."""
    ids = [safe(case.id) for case in cases if case.as_expected]
    if not ids:
        return []
    lead = f"{screen.glyphs.tick} {len(ids):,} as expected: "
    return [line(lead, shortened(", ".join(ids), screen.width - len(lead), screen.glyphs.ellipsis))]


def _evidence(case: CaseResult, worst: Problem, others: Sequence[Problem], screen: Screen) -> list[Line]:
    """Return where backward is, what the worst finding says with its worst elements, and how to repeat the case."""
    rows = [line(f"backward: {safe(case.source.file)}:{case.source.line}")] if case.source else []
    rows += _sentence(worst, screen)
    if worst.finding is not None:
        most = _TABLE - 1 if case.note else _TABLE
        rows += indented(_table(worst.finding, most, narrowed(screen, _INDENT)), _INDENT)
    if others:
        names = Counter(map(_named, others))
        more = ", ".join(f"{count} more {name}" if name == _named(worst) else name for name, count in names.items())
        rows.append(line(shortened(f"also: {safe(more)}", screen.width, screen.glyphs.ellipsis)))
    command = reproduce_command(case)
    return [*rows, *(command_lines("reproduce:", command, screen.width) if command else [])]


def _note(case: CaseResult, most: int, screen: Screen) -> list[Line]:
    return _limited([line(row) for row in fold(safe(case.note), screen.width)], most, screen) if case.note else []


def _rank(problem: Problem) -> tuple[int, bool]:
    """Return the sort key: the worst verdict first, and of equal ones what explains wrong numbers of other inputs."""
    return WORST_FIRST.index(problem.verdict), problem.code not in _EXPLAIN_OTHERS


def _named(problem: Problem) -> str:
    return " ".join(filter(None, (problem.check, problem.code))) or problem.verdict.value


def _cause(problem: Problem, screen: Screen) -> list[Line]:
    finding = problem.finding
    if finding is None or not finding.cause:
        return []
    says, why = _parts(problem)
    return _limited(cause_lines(finding.cause, why or says, screen), _CAUSE, screen)


def _parts(problem: Problem) -> tuple[str, str]:
    """Return what is wrong, and how the cause explains it."""
    says, _, why = problem.message.partition("\n")
    return says, why


def _sentence(problem: Problem, screen: Screen) -> list[Line]:
    says = _parts(problem)[0] if problem.finding is not None and problem.finding.cause else problem.message
    text = block_named(problem.finding, says) if problem.finding else says
    return _limited([line(row) for row in fold(f"{_named(problem)}: {text}", screen.width)], _SENTENCE, screen)


def _limited(rows: Sequence[Line], most: int, screen: Screen) -> list[Line]:
    """Return at most `most` rows; the last one is marked if there were more."""
    if len(rows) <= most:
        return [*rows]
    goes_on = " ".join("".join(part.text for part in row) for row in rows[most - 1 :])
    return [*rows[: most - 1], line(shortened(goes_on, screen.width, screen.glyphs.ellipsis))]


def _table(finding: Finding, most: int, screen: Screen) -> list[Line]:
    for count in range(min(_ROWS, len(finding.elements)), 0, -1):
        table = element_table(finding, finding.elements[:count], screen)
        if len(table) <= most:
            return table
    return []


def _fix(problem: Problem, room: int, screen: Screen) -> list[Line]:
    """Return the page's name and its mended example if they fit in `room` lines, else the command that prints it.

    None for a fail without a cause whose code many mistakes have: its page can only mend an example.
    """
    cause = problem.finding.cause if problem.finding is not None else None
    page = section_of(cause or problem.code or "", sections())
    if page is None:
        return []
    command = line(f"fix: gradverify explain {page.name}")
    mended = _mended(page)
    if not mended and not cause and problem.verdict is Verdict.FAIL:
        return []
    rows = [line(row) for row in mended if row.strip()]
    if not rows or len(rows) + 1 > room or any(len(row) + _INDENT > screen.width for row in mended):
        return [command]
    return [line(f"fix as in gradverify explain {page.name}:"), *indented(rows, _INDENT)]


def _mended(page: Section) -> list[str]:
    """Return the lines of code under "Mended:" on the page, none if it has no such example.

    An example under "Mended, in this example:" or "Mended, by another point:" mends hardly anything else.
    """
    code = page.text.partition("Mended:\n")[2].lstrip("\n").splitlines()
    end = next((number for number, row in enumerate(code) if row.strip() and not row.startswith(" ")), len(code))
    return dedent("\n".join(code[:end])).rstrip().splitlines()
