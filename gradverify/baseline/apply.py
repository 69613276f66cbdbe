"""Results against a baseline: what is known is as expected, and what is known but gone can be removed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gradverify.baseline.model import Baseline, Entry, Key, described, excess, has_expired
from gradverify.problem import Problem, problems_of
from gradverify.result import PRINTED, CaseResult, Finding, Index, Method, Report, Verdict, summarize
from gradverify.spec.wording import visible

_FAILING = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR)
NO_REASON = "not looked into yet"  # of an entry that nobody has written


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A baseline on one day."""

    entries: Mapping[Key, Entry]
    today: datetime.date


def judge_of(baseline: Baseline, today: datetime.date) -> Judge:
    """Return a judge who knows a baseline."""
    return Judge(entries={entry.key: entry for entry in baseline.entries}, today=today)


def judged(case: CaseResult, judge: Judge) -> CaseResult:
    """Return a case as expected where every finding is known, else with what the baseline says about it."""
    found = findings_of(case)
    if not found:
        return case
    known = [(judge.entries[now.key], now) for now in found if now.key in judge.entries]
    notes = [
        f"the baseline's entry {described(entry)} expired on {entry.expires} ({entry.reason})"
        for entry, _ in known
        if has_expired(entry, judge.today)
    ]
    beyond = [f"{described(now)} ({more})" for entry, now in known if (more := excess(entry, now))]
    notes += [f"beyond the baseline: {', '.join(beyond)}"] if beyond else []
    if len(known) == len(found) and not notes:
        return replace(case, as_expected=True, known="; ".join(dict.fromkeys(entry.reason for entry, _ in known)))
    new = [described(now) for now in found if now.key not in judge.entries]
    notes += [f"not in the baseline: {', '.join(new)}"] if known and new else []
    return replace(case, as_expected=False, known=None, message=_with_notes(case.message, notes))


def judged_report(report: Report, judge: Judge) -> Report:
    """Return a report with every case judged."""
    cases = tuple(judged(case, judge) for case in report.cases)
    return replace(report, cases=cases, summary=summarize(cases, report.summary.seconds))


def findings_of(case: CaseResult) -> tuple[Entry, ...]:
    """Return the findings that a baseline may know, as entries; none where it may know nothing about the case.

    It knows failures of cases that should pass. A pass or a skip that nobody expected has no code, and where the spec
    has expectations of its own, they are the place to say more. Findings with the same key are one entry.
    """
    if case.verdict not in _FAILING or case.expected is not Verdict.PASS:
        return ()
    found: dict[Key, Entry] = {}
    for problem in problems_of(case):
        entry = _entry(case, problem)
        if entry is None:
            return ()
        before = found.get(entry.key)
        if before is not None:
            entry = _together(before, entry)
        found[entry.key] = entry
    return tuple(found.values())


def fixed(report: Report, baseline: Baseline) -> tuple[Entry, ...]:
    """Return the entries whose case was run, whose check came to an answer, and whose finding is gone."""
    cases = {visible(case.id): case for case in report.cases}
    return tuple(entry for entry in baseline.entries if entry.case in cases and _is_gone(entry, cases[entry.case]))


def smaller(report: Report, baseline: Baseline) -> tuple[tuple[Entry, int], ...]:
    """Return the entries whose finding has fewer wrong entries than they know, each with how many there are.

    Those of probed Jacobians are left out: how many entries the search finds says nothing of how many there are.
    """
    found = (now for case in report.cases for now in findings_of(case))
    totals = {now.key: now.total for now in found if now.columns is None}
    counts = ((entry, totals.get(entry.key, entry.total)) for entry in baseline.entries)
    return tuple((entry, total) for entry, total in counts if total < entry.total)


def renewed(report: Report, baseline: Baseline) -> Baseline:
    """Return a baseline that knows what fails now; entries that hold on keep reason and expiry, fixed ones go."""
    gone = {entry.key for entry in fixed(report, baseline)}
    entries = {entry.key: entry for entry in baseline.entries if entry.key not in gone}
    for now in (entry for case in report.cases for entry in findings_of(case)):
        before = entries.get(now.key)
        entries[now.key] = replace(now, reason=before.reason, expires=before.expires) if before else now
    return Baseline(entries=tuple(entries.values()))


def _entry(case: CaseResult, problem: Problem) -> Entry | None:
    """Return what an entry says that knows exactly this problem, None where it has no code."""
    if problem.code is None:
        return None
    finding = problem.finding
    return Entry(
        case=visible(case.id),
        check=problem.check,
        code=problem.code,
        of=visible(finding.of) if finding and finding.of else None,
        wrt=visible(finding.wrt) if finding and finding.wrt else None,
        total=max(finding.total, 1) if finding else 1,
        columns=_columns(finding) if finding and _is_probed(case, problem.check) else None,
        cause=finding.cause if finding else None,
        reason=NO_REASON,
    )


def _is_probed(case: CaseResult, check: str | None) -> bool:
    return any(one.check == check and one.method is Method.PROBED for one in case.checks)


def _columns(finding: Finding) -> tuple[Index, ...] | None:
    """Return the columns of the wrong entries; None where the finding is about no entries."""
    if not finding.elements and finding.verdict is not Verdict.FAIL:
        return None
    return tuple(sorted({element.input_index for element in finding.elements}))


def _together(first: Entry, second: Entry) -> Entry:
    """Return one entry for two findings with the same key."""
    columns = None
    if first.columns is not None or second.columns is not None:
        columns = tuple(sorted({*(first.columns or ()), *(second.columns or ())}))
    return replace(first, total=first.total + second.total, columns=columns, cause=first.cause or second.cause)


def _is_gone(entry: Entry, case: CaseResult) -> bool:
    problems = (_entry(case, problem) for problem in problems_of(case))
    if any(now is not None and now.key == entry.key for now in problems):
        return False
    if entry.check is None:
        return bool(case.checks)
    return any(check.check == entry.check and check.verdict in (Verdict.PASS, Verdict.FAIL) for check in case.checks)


def _with_notes(message: str, notes: Sequence[str]) -> str:
    says, mark, printed = message.partition(PRINTED)
    missing = [note for note in notes if note not in says]  # a report may be judged twice
    return "; ".join([says, *missing] if says else missing) + mark + printed
