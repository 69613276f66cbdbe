"""Results against a baseline: what is known is as expected, and what is known but gone can be removed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gradverify.baseline.model import Baseline, Entry, Key, described, finding_name, has_expired
from gradverify.problem import problems_of
from gradverify.result import PRINTED, CaseResult, Report, Verdict, summarize
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
    keys = keys_of(case)
    if not keys:
        return case
    entries = [judge.entries[key] for key in keys if key in judge.entries]
    expired = [entry for entry in entries if has_expired(entry, judge.today)]
    if len(entries) == len(keys) and not expired:
        return replace(case, as_expected=True, known="; ".join(dict.fromkeys(entry.reason for entry in entries)))
    notes = [
        f"the baseline's entry {described(entry)} expired on {entry.expires} ({entry.reason})" for entry in expired
    ]
    new = [finding_name(*key[1:]) for key in keys if key not in judge.entries]
    notes += [f"not in the baseline: {', '.join(new)}"] if entries and new else []
    return replace(case, as_expected=False, known=None, message=_with_notes(case.message, notes))


def judged_report(report: Report, judge: Judge) -> Report:
    """Return a report with every case judged."""
    cases = tuple(judged(case, judge) for case in report.cases)
    return replace(report, cases=cases, summary=summarize(cases, report.summary.seconds))


def keys_of(case: CaseResult) -> tuple[Key, ...]:
    """Return the findings that a baseline may know; none where it may know nothing about the case.

    It knows failures of cases that should pass. A pass or a skip that nobody expected has no code, and where the spec
    has expectations of its own, they are the place to say more.
    """
    if case.verdict not in _FAILING or case.expected is not Verdict.PASS:
        return ()
    keys = [(visible(case.id), problem.check, problem.code) for problem in problems_of(case)]
    coded = tuple((name, check, code) for name, check, code in dict.fromkeys(keys) if code is not None)
    return coded if len(coded) == len(set(keys)) else ()


def fixed(report: Report, baseline: Baseline) -> tuple[Entry, ...]:
    """Return the entries whose case was run, whose check came to an answer, and whose finding is gone."""
    cases = {visible(case.id): case for case in report.cases}
    return tuple(entry for entry in baseline.entries if entry.case in cases and _is_gone(entry, cases[entry.case]))


def renewed(report: Report, baseline: Baseline) -> Baseline:
    """Return a baseline that knows what fails now; entries that hold on keep reason and expiry, fixed ones go."""
    gone = {entry.key for entry in fixed(report, baseline)}
    entries = {entry.key: entry for entry in baseline.entries if entry.key not in gone}
    for case, check, code in (key for one in report.cases for key in keys_of(one)):
        made = Entry(case=case, check=check, code=code, reason=NO_REASON)
        entries.setdefault(made.key, made)
    return Baseline(entries=tuple(entries.values()))


def _is_gone(entry: Entry, case: CaseResult) -> bool:
    if any((problem.check, problem.code) == (entry.check, entry.code) for problem in problems_of(case)):
        return False
    if entry.check is None:
        return bool(case.checks)
    return any(check.check == entry.check and check.verdict in (Verdict.PASS, Verdict.FAIL) for check in case.checks)


def _with_notes(message: str, notes: Sequence[str]) -> str:
    says, mark, printed = message.partition(PRINTED)
    missing = [note for note in notes if note not in says]  # a report may be judged twice
    return "; ".join([says, *missing] if says else missing) + mark + printed
