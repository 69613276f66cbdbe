"""The page before any case is opened: the headline, the counts, and a line per case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gradverify.report.case_lines import time_text
from gradverify.report.checks_text import every_check
from gradverify.report.explored_text import explored_verdict, tries_part
from gradverify.report.lines import plain
from gradverify.report.page.rows import checks_shown
from gradverify.report.page.texts import one_line
from gradverify.report.screen import UNICODE
from gradverify.report.shards import missing_text
from gradverify.report.words import case_badge, counted
from gradverify.result import CaseResult, CheckResult, Environment, Report, Verdict, without_output

_WORST_FIRST = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.SKIP, Verdict.PASS)
_SENTENCE = 200  # characters of a sentence in the listing; the whole of it is in the details


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A verdict, and the words beside it."""

    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One case in the listing."""

    number: int  # place in the report
    id: str
    verdict: Verdict
    as_expected: bool
    badge: str
    device: str
    dtype: str
    seconds: str
    checks: tuple[Mark, ...]
    causes: tuple[str, ...]  # with the check that names each
    why: str  # a sentence, for a case that did not pass
    words: str  # what else it can be found by


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of all cases, in percent of the bar it is drawn in."""

    verdict: Verdict
    as_expected: bool
    start: float
    width: float


def line_of(number: int, case: CaseResult) -> Line:
    """Return a case's line."""
    shown = checks_shown(case)
    findings = [finding for check in shown for finding in check.findings]
    named = ((check.check, finding.cause) for check in shown for finding in check.findings if finding.cause)
    causes = tuple(dict.fromkeys(f"{one_line(check)}: {one_line(cause)}" for check, cause in named))
    codes = dict.fromkeys(finding.code for finding in findings)
    return Line(
        number=number,
        id=one_line(case.id),
        verdict=case.verdict,
        as_expected=case.as_expected,
        badge=str(case_badge(case, UNICODE)),
        device=one_line(case.device),
        dtype=one_line(case.dtype),
        seconds=time_text(case.seconds),
        checks=(*map(_mark, case.checks), *_explored_mark(case)),
        causes=causes,
        why="" if case.verdict is Verdict.PASS and case.as_expected else _why(case),
        words=one_line(" ".join([case.function, case.spec, *codes])),
    )


def headline(report: Report) -> str:
    """Return how the run ended, in one sentence."""
    total, unexpected, missing = report.summary.cases, report.summary.unexpected, missing_text(report)
    if not total:
        return "No case has finished"
    told = f"{unexpected} of {counted(total, 'case')} not" if unexpected else counted(total, "case")
    return f"{told} as expected{f'; {missing}' if missing else ''}"


def verdict_counts(cases: Iterable[CaseResult]) -> tuple[tuple[Verdict, int], ...]:
    """Return the verdicts that came up, worst first, with the number of their cases."""
    counts = Counter(case.verdict for case in cases)
    return tuple((verdict, counts[verdict]) for verdict in _WORST_FIRST if counts[verdict])


def shares(cases: Sequence[CaseResult]) -> tuple[Share, ...]:
    """Return the parts of a bar: what is not as expected from the left, then the rest."""
    counts = Counter((case.as_expected, case.verdict) for case in cases)
    order = [(expected, verdict) for expected in (False, True) for verdict in _WORST_FIRST]
    parts = [(key, 100 * counts[key] / len(cases)) for key in order if counts[key]]
    starts = accumulate((width for _, width in parts), initial=0.0)
    return tuple(
        Share(verdict=verdict, as_expected=expected, start=round(start, 3), width=round(width, 3))
        for ((expected, verdict), width), start in zip(parts, starts, strict=False)
    )


def skip_reasons(cases: Iterable[CaseResult]) -> tuple[str, ...]:
    """Return each reason for a skip once, with how many cases it stands for."""
    reasons = Counter(_why(case) for case in cases if case.verdict is Verdict.SKIP)
    return tuple(f"{counted(number, 'case')} skipped: {reason}" for reason, number in reasons.most_common() if reason)


def environment_facts(report: Report) -> tuple[tuple[str, str], ...]:
    """Return where and with what the run took place."""
    where: Environment = report.environment
    facts = [
        ("gradverify", report.gradverify),
        ("torch", where.torch),
        ("Python", where.python),
        ("platform", where.platform),
        ("devices", ", ".join(where.devices)),
        ("seed", "as the specs say" if where.seed is None else str(where.seed)),
        ("time", time_text(report.summary.seconds)),
    ]
    return tuple((name, one_line(value)) for name, value in facts)


def _mark(check: CheckResult) -> Mark:
    return Mark(verdict=check.verdict, text=one_line(plain(every_check([check], UNICODE))))


def _explored_mark(case: CaseResult) -> tuple[Mark, ...]:
    if case.explored is None:
        return ()
    text = one_line(plain(tries_part(case.explored, UNICODE)))
    return (Mark(verdict=explored_verdict(case.explored), text=text),)


def _why(case: CaseResult) -> str:
    told = [finding.message for check in case.checks for finding in check.findings if finding.verdict is case.verdict]
    told += [check.message for check in case.checks if check.verdict is case.verdict]
    reason = next((text for text in (case.message, *told) if text), "")
    line = one_line(next(iter(without_output(reason).splitlines()), ""))
    return line if len(line) <= _SENTENCE else f"{line[:_SENTENCE].rstrip()} …"
