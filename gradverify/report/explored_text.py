"""What changing the inputs of a case found, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from gradverify.problem import BROKEN_OFF, found_at
from gradverify.report.lines import DIM, HEAD, Line, indented, line, span
from gradverify.report.safe import fold, safe, shortened
from gradverify.report.screen import Detail, Glyphs, Screen, narrowed
from gradverify.report.words import badge_of, counted
from gradverify.result import CaseResult, CheckResult, Discovery, Exploration, Grade, Verdict

CheckLines = Callable[[CheckResult, Screen], list[Line]]
_INDENT = 2
_LISTED = 5  # remarks without -v
_LINES = 12  # of all of them; each has two at least
_UNWRITTEN = "not written as a spec: YAML has no word for one of its inputs"


def explored_verdict(explored: Exploration) -> Verdict:
    """Return fail if the case fails by what was found, error if gradverify raised, skip if nothing was tried."""
    if not explored:
        return Verdict.FAIL if explored.failing else Verdict.ERROR
    return Verdict.PASS if explored.tries else Verdict.SKIP


def tries_part(explored: Exploration, glyphs: Glyphs) -> Line:
    """Return the sign and the number of tries that stand beside a case's checks."""
    badge = badge_of(explored_verdict(explored), glyphs)
    return line(span(badge.symbol, badge.style), " explore", span(f" {_tries(explored.tries)}", DIM))


def discovery_lines(case: CaseResult, found: Discovery, screen: Screen, most: int, checks: CheckLines) -> list[Line]:
    """Return where a discovery was found, its inputs in at most `most` lines each, its checks, and its spec."""
    assert case.explored is not None
    inner = narrowed(screen, _INDENT)
    sign = screen.glyphs.cross if found in case.explored.failing else "?"
    kind = "extreme, " if found.grade is Grade.EXTREME else ""
    head = fold(f"{sign} {kind}{found_at(found, case.explored)}", screen.width - _INDENT)
    rows = [line(span(head[0], HEAD)), *(line("  ", span(row, HEAD)) for row in head[1:])]
    rows += indented((row for text in found.inputs.splitlines() for row in _input(text, most, inner)), _INDENT)
    for check in found.checks:
        rows += indented(checks(check, inner), _INDENT)
    last = [also_text(found)] if found.also else []
    last += [f"as a spec: {safe(found.saved)}"] if found.saved else [] if found.spec else [_UNWRITTEN]
    return [*rows, *indented((line(span(row, DIM)) for text in last for row in fold(text, inner.width)), _INDENT)]


def saving_lines(case: CaseResult, width: int) -> list[Line]:
    """Return how what was found can be written as specs; none where it was, or where nothing can be."""
    found = case.explored.failing if case.explored is not None else ()
    if not case.spec or not any(each.spec and not each.saved for each in found):
        return []
    what = "it as a spec" if len(found) == 1 else "them as specs"
    return [line(span(row, DIM)) for row in fold(f"with --save DIR, gradverify explore writes {what}", width)]


def also_text(found: Discovery) -> str:
    """Return how many later tries seem wrong in the same way, and where; "" if none does. No check has judged them."""
    at = f": {safe('; '.join(found.also_at))}" if found.also_at else ""
    verb = "seems" if found.also == 1 else "seem"
    return f"{counted(found.also, 'later try', 'later tries')} {verb} wrong in the same way{at}" if found.also else ""


def explored_counts(explored: Exploration) -> str:
    """Return "120 tries with other inputs, 1 failure, 2 questions" and what was left out, or why nothing was tried."""
    message = BROKEN_OFF if explored.broken else explored.message  # the case says by what
    if message and not explored.tries:
        return f"nothing was tried: {message}"
    counts = ", ".join([f"{_tries(explored.tries)} with other inputs", *_found([explored])])
    return f"{counts}; {message}" if message else counts


def remarks(explored: Exploration) -> list[str]:
    """Return a sentence for each discovery that fails no case, and for each try that did not finish."""
    failing = explored.failing
    rest = [each for each in explored.discoveries if each not in failing]
    texts = [f"{each.grade.value} at try {each.number:,}: {_change(each)}: {_first_line(each)}" for each in rest]
    return [*texts, *(f"a try did not finish: {phrase}" for phrase in explored.lost)]


def remark_texts(cases: Sequence[CaseResult], screen: Screen, detail: Detail) -> list[str]:
    """Return a sentence for each remark about a case, a few of them; none with -q, and none with -v, which has all."""
    if detail is not Detail.NORMAL:
        return []
    texts = [f"{safe(case.id)}: {safe(text)}" for case, text in _remarked(cases)]
    most = max(2, _LINES // max(1, len(texts))) * (screen.width - 10)
    kept = [shortened(text, most, screen.glyphs.ellipsis) for text in texts[:_LISTED]]
    kept += [f"and {len(texts) - _LISTED:,} more: -v"] if len(texts) > _LISTED else []
    untried = [case.explored for case in cases if case.explored is not None]
    reasons = Counter(explored.message for explored in untried if not explored.tries)
    return [*kept, *(f"{counted(n, 'case')} not explored: {safe(why)}" for why, n in reasons.items() if why)]


def explored_total(cases: Sequence[CaseResult]) -> str:
    """Return "2 cases explored, 640 tries, 1 failure, 3 questions"; "" where no inputs were changed."""
    explored = [case.explored for case in cases if case.explored is not None]
    if not explored:
        return ""
    tried = [each for each in explored if each.tries]
    lost = sum(len(each.lost) for each in explored)
    if not tried and not lost:
        return ""  # the remarks say why
    texts = [f"{counted(len(tried), 'case')} explored", _tries(sum(each.tries for each in tried)), *_found(tried)]
    texts += [f"{counted(lost, 'try', 'tries')} not finished"] if lost else []
    return ", ".join(texts)


def remark_lines(explored: Exploration, width: int) -> list[Line]:
    """Return the remarks in full, the further lines of each under its first."""
    rows: list[Line] = []
    for text in remarks(explored):
        first, *rest = fold(safe(text), width - _INDENT)
        rows += [line(first), *(line("  ", row) for row in rest)]
    return rows


def _remarked(cases: Iterable[CaseResult]) -> Iterator[tuple[CaseResult, str]]:
    """Yield the first remark about every case, then the second of every case, and so on."""
    told = [(case, remarks(case.explored)) for case in cases if case.explored is not None]
    for number in range(max((len(texts) for _, texts in told), default=0)):
        yield from ((case, texts[number]) for case, texts in told if number < len(texts))


def _input(text: str, most: int, screen: Screen) -> list[Line]:
    rows = fold(text, screen.width - 2 * _INDENT)
    kept = rows if len(rows) <= most else [*rows[: most - 1], f"{rows[most - 1]} {screen.glyphs.ellipsis}"]
    return [line(kept[0]), *(line("  ", row) for row in kept[1:])]


def _found(explored: Iterable[Exploration]) -> list[str]:
    grades = [found.grade for each in explored for found in each.discoveries]
    return [counted(grades.count(grade), grade.value) for grade in Grade if grade in grades]


def _tries(number: int) -> str:
    return counted(number, "try", "tries")


def _change(found: Discovery) -> str:
    return ", ".join(found.changes)


def _first_line(found: Discovery) -> str:
    return found.message.partition("\n")[0]
