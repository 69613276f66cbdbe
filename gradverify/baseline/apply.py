"""Apply a baseline to results: known findings are as expected; entries without a finding are fixed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gradverify.baseline.model import Baseline, Entry, Key, described, excess, has_expired
from gradverify.problem import Problem, problems_of
from gradverify.result import PRINTED, CaseResult, Finding, Index, Method, Report, Verdict, summarize
from gradverify.spec.wording import visible

_FAILING = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR)
NO_REASON = "not looked into yet"  # the reason of a new entry


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOn:
    """The entries of a baseline by key, and the day on which they are applied."""

    entries: Mapping[Key, Entry]
    today: datetime.date


def baseline_on(baseline: Baseline, today: datetime.date) -> BaselineOn:
    """Return the baseline, ready to be applied on this day."""
    return BaselineOn(entries={entry.key: entry for entry in baseline.entries}, today=today)


def case_with_baseline(case: CaseResult, baseline: BaselineOn) -> CaseResult:
    """Return the case, as expected if all its findings are known, else with notes on the differences in its message."""
    found = findings_of(case)
    if not found:
        return case
    known = [(baseline.entries[current.key], current) for current in found if current.key in baseline.entries]
    notes = [
        f"the baseline's entry {described(entry)} expired on {entry.expires} ({entry.reason})"
        for entry, _ in known
        if has_expired(entry, baseline.today)
    ]
    beyond = [f"{described(current)} ({more})" for entry, current in known if (more := excess(entry, current))]
    notes += [f"beyond the baseline: {', '.join(beyond)}"] if beyond else []
    if len(known) == len(found) and not notes:
        return replace(case, as_expected=True, known="; ".join(dict.fromkeys(entry.reason for entry, _ in known)))
    new = [described(current) for current in found if current.key not in baseline.entries]
    notes += [f"not in the baseline: {', '.join(new)}"] if known and new else []
    return replace(case, as_expected=False, known=None, message=_with_notes(case.message, notes))


def report_with_baseline(report: Report, baseline: BaselineOn) -> Report:
    """Return the report with the baseline applied to every case."""
    cases = tuple(case_with_baseline(case, baseline) for case in report.cases)
    return replace(report, cases=cases, summary=summarize(cases, report.summary.seconds))


def findings_of(case: CaseResult) -> tuple[Entry, ...]:
    """Return the findings of a case as entries; () if a baseline cannot cover the case.

    A baseline covers failures of cases that should pass. An unexpected pass or skip has no code, and a case whose spec
    has an `expect` is described there, as is a claim about bytes that does not hold. Findings with the same key become
    one entry.
    """
    claim_holds = case.measured is None or case.measured.claim_holds
    if case.verdict not in _FAILING or case.expected is not Verdict.PASS or not claim_holds:
        return ()
    found: dict[Key, Entry] = {}
    for problem in problems_of(case):
        entry = _entry(case, problem)
        if entry is None:
            return ()
        previous = found.get(entry.key)
        if previous is not None:
            entry = _merged(previous, entry)
        found[entry.key] = entry
    return tuple(found.values())


def fixed_entries(report: Report, baseline: Baseline) -> tuple[Entry, ...]:
    """Return the entries whose case and check were run with a verdict, and whose finding is gone."""
    cases = {visible(case.id): case for case in report.cases}
    return tuple(entry for entry in baseline.entries if entry.case in cases and _is_gone(entry, cases[entry.case]))


def shrunk_entries(report: Report, baseline: Baseline) -> tuple[tuple[Entry, int], ...]:
    """Return the entries whose finding has fewer wrong Jacobian entries than `total`, with the present number.

    Findings of probed Jacobians are left out: the search does not find all wrong entries.
    """
    found = (current for case in report.cases for current in findings_of(case))
    totals = {current.key: current.total for current in found if current.columns is None}
    counts = ((entry, totals.get(entry.key, entry.total)) for entry in baseline.entries)
    return tuple((entry, total) for entry, total in counts if total < entry.total)


def updated_baseline(report: Report, baseline: Baseline) -> Baseline:
    """Return a baseline of the present failures. Entries that still apply keep reason and expiry; fixed ones go."""
    gone = {entry.key for entry in fixed_entries(report, baseline)}
    entries = {entry.key: entry for entry in baseline.entries if entry.key not in gone}
    for current in (entry for case in report.cases for entry in findings_of(case)):
        previous = entries.get(current.key)
        entries[current.key] = (
            replace(current, reason=previous.reason, expires=previous.expires) if previous else current
        )
    return Baseline(entries=tuple(entries.values()))


def _entry(case: CaseResult, problem: Problem) -> Entry | None:
    """Return the entry for exactly this problem, None if the problem has no code."""
    if problem.code is None:
        return None
    finding = problem.finding
    return Entry(
        case=visible(case.id),
        check=problem.check,
        code=problem.code,
        of=visible(finding.of) if finding and finding.of else None,
        wrt=visible(finding.wrt) if finding and finding.wrt else None,
        changed=visible(problem.changed) or None,
        total=max(finding.total, 1) if finding else 1,
        columns=_columns(finding) if finding and _is_probed(case, finding) else None,
        cause=finding.cause if finding else None,
        reason=NO_REASON,
    )


def _is_probed(case: CaseResult, finding: Finding) -> bool:
    elsewhere = case.explored.failing if case.explored is not None else ()
    checks = [*case.checks, *(check for found in elsewhere for check in found.checks)]
    return any(check.method is Method.PROBED and finding in check.findings for check in checks)


def _columns(finding: Finding) -> tuple[Index, ...] | None:
    """Return the columns of the wrong entries; None if the finding is not about entries."""
    if not finding.elements and finding.verdict is not Verdict.FAIL:
        return None
    return tuple(sorted({element.input_index for element in finding.elements}))


def _merged(first: Entry, second: Entry) -> Entry:
    """Return one entry for two findings with the same key."""
    columns = None
    if first.columns is not None or second.columns is not None:
        columns = tuple(sorted({*(first.columns or ()), *(second.columns or ())}))
    return replace(first, total=first.total + second.total, columns=columns, cause=first.cause or second.cause)


def _is_gone(entry: Entry, case: CaseResult) -> bool:
    problems = (_entry(case, problem) for problem in problems_of(case))
    if any(current is not None and current.key == entry.key for current in problems):
        return False
    if entry.changed is not None:
        return case.explored is not None and case.explored.tries > 0
    if entry.check is None:
        return bool(case.checks)
    return any(check.check == entry.check and check.verdict in (Verdict.PASS, Verdict.FAIL) for check in case.checks)


def _with_notes(message: str, notes: Sequence[str]) -> str:
    says, mark, printed = message.partition(PRINTED)
    missing = [note for note in notes if note not in says]  # a baseline may be applied twice
    return "; ".join([says, *missing] if says else missing) + mark + printed
