"""The last line: how many cases came out how, and in what time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gradverify.report import numbers
from gradverify.report.case_lines import time_text
from gradverify.report.explored_text import explored_total, remark_texts
from gradverify.report.lines import BAD, DIM, GOOD, Line, cells, line, span
from gradverify.report.repeated_skips import unlisted
from gradverify.report.safe import fold, safe
from gradverify.report.screen import Detail, Screen
from gradverify.report.shards import missing_text
from gradverify.report.uncovered_text import uncovered_texts
from gradverify.report.words import counted
from gradverify.result import BLUNT, CaseResult, Report, Stop, Verdict

_POINT = "- "
_COMPARES_GRADIENTS = ("gradcheck", "gradgradcheck", "reference", "forward_ad", "precision", "parity")


def summary_lines(report: Report, screen: Screen) -> list[Line]:
    """Return one sentence, folded where the screen is narrow."""
    good = [case for case in report.cases if case.as_expected]
    bad = [case for case in report.cases if not case.as_expected]
    missing = missing_text(report)
    sign, style = (screen.glyphs.cross, BAD) if bad or missing else (screen.glyphs.tick, GOOD)
    total = report.summary.cases
    head = (
        f"{counted(total, 'case')} as expected"
        if not bad
        else f"{len(bad):,} of {counted(total, 'case')} not as expected"
    )
    head = f"{missing}; {head}" if missing else head
    first = f"{sign} {head}: {_words(bad or good)}" if total else f"{sign} {head}"
    second = f"as expected: {_words(good)}" if bad and good else ""
    took = f" in {time_text(report.summary.seconds)}"
    whole = f"{first}; {second}{took}" if second else f"{first}{took}"
    texts = [whole] if not second or cells(whole) <= screen.width else [first, f"  {second}{took}"]
    return [line(span(row, style)) for text in texts for row in fold(text, screen.width)]


def skip_lines(report: Report, screen: Screen, detail: Detail) -> list[Line]:
    """Return each reason for a skip once, with how many cases it stands for, without those shown as not expected."""
    skipped = [case for case in report.cases if case.verdict is Verdict.SKIP and case.as_expected]
    reasons = Counter(_reason(case) for case in skipped)
    whole = Counter(_reason(case) for case in skipped if not case.checks)
    texts = [
        f"{counted(number, 'case')} skipped: {reason}{unlisted(whole[reason]) if detail is Detail.NORMAL else ''}"
        for reason, number in reasons.most_common()
        if reason
    ]
    uncompared = Counter(reason for case in report.cases if (reason := _why_uncompared(case)))
    texts += [
        f"{counted(number, 'case')} passed without a gradient compared; {reason}"
        for reason, number in uncompared.most_common()
    ]
    return _points(texts, screen)


def known_lines(report: Report, screen: Screen) -> list[Line]:
    """Return each reason for which a baseline takes failures as expected, with how many cases it stands for."""
    reasons = Counter(case.known for case in report.cases if case.known is not None)
    texts = [f"{counted(number, 'case')} known: {safe(reason)}" for reason, number in reasons.most_common()]
    return _points(texts, screen)


def blunt_lines(report: Report, screen: Screen) -> list[Line]:
    """Return how many checks passed although they may miss errors above `BLUNT`, with the worst of them."""
    blunt = [
        (check.detection_limit, check.check, case.id)
        for case in report.cases
        for check in case.checks
        if check.verdict is Verdict.PASS and check.detection_limit is not None and check.detection_limit > BLUNT
    ]
    if not blunt:
        return []
    limit, name, place = max(blunt, key=lambda found: found[0])
    worst = f"{name} of {safe(place)}"
    missed = "any error of some entries" if limit >= 1 else f"relative errors below {numbers.at_least(limit, 1)}"
    text = f"{worst} passes, but may miss {missed}"
    if len(blunt) > 1:
        above = numbers.compact(BLUNT)
        text = f"{len(blunt):,} checks pass with a detection limit above {above}"
        text += f"; {worst} may miss {missed} (-v: all)"
    return _points([text], screen)


def explored_lines(report: Report, screen: Screen, detail: Detail) -> list[Line]:
    """Return remarks about tries with other inputs, and how many there were."""
    total = explored_total(report.cases)
    return _points([*remark_texts(report.cases, screen, detail), *([total] if total else [])], screen)


def not_run_lines(report: Report, screen: Screen) -> list[Line]:
    """Return how many cases were not run although nobody stopped the run, and why."""
    reasons = Counter(case.why for case in report.not_run if case.why is not Stop.INTERRUPT)  # which the summary says
    texts = [f"{counted(number, 'case')} not run ({why.value})" for why, number in reasons.items()]
    return _points(texts, screen)


def uncovered_lines(report: Report, screen: Screen, detail: Detail) -> list[Line]:
    """Return what no case of a function exercised of its code: five entries, or all if detail is VERBOSE."""
    return _points(uncovered_texts(report.cases, detail, screen.glyphs), screen)


def _points(texts: Iterable[str], screen: Screen) -> list[Line]:
    """Return each text as a point of a list, its further lines under its first."""
    rows: list[Line] = []
    for text in texts:
        first, *rest = fold(text, screen.width - len(_POINT))
        rows += [line(span(row, DIM)) for row in (f"{_POINT}{first}", *(" " * len(_POINT) + row for row in rest))]
    return rows


def _words(cases: Sequence[CaseResult]) -> str:
    """Return "2 pass, 3 skip (1 draft)"."""
    counts = Counter(case.verdict for case in cases)
    drafts = sum(case.draft for case in cases)
    words = ", ".join(f"{counts[verdict]:,} {verdict.value}" for verdict in Verdict if counts[verdict])
    return f"{words} ({counted(drafts, 'draft')})" if drafts else words  # skip comes last


def _why_uncompared(case: CaseResult) -> str:
    """Return why no check of a passing case compared a gradient; "" if one did, or none was to."""
    comparing = [check for check in case.checks if check.check in _COMPARES_GRADIENTS]
    if case.verdict is not Verdict.PASS or any(check.verdict is not Verdict.SKIP for check in comparing):
        return ""
    return "; ".join(f"{check.check}: {safe(check.message)}" for check in comparing)


def _reason(case: CaseResult) -> str:
    reason = case.message or next((check.message for check in case.checks if check.message), "")
    return safe(" ".join(reason.split()))
