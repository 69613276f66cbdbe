"""One check's answer in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.report import numbers
from gradverify.report.lines import DIM, Line, Span, line, span
from gradverify.report.screen import Glyphs
from gradverify.report.words import badge_of, counted
from gradverify.result import AgreesWith, CheckResult, Method, Verdict

_GAP: Span = span("  ")
_HIDDEN = (
    ": a part of the forward may be hidden from autograd, as by a detach, or rounding in low precision is alike in both"
)


def each_check(checks: Sequence[CheckResult], glyphs: Glyphs) -> list[Line]:
    """Return each check's sign, name and counts."""
    return [_one(check, glyphs) for check in checks]


def every_check(checks: Sequence[CheckResult], glyphs: Glyphs) -> Line:
    """Return all of them as one line."""
    return joined(each_check(checks, glyphs))


def check_groups(checks: Sequence[CheckResult], glyphs: Glyphs) -> list[Line]:
    """Return the checks that passed as one group, likewise those that could not be run, and each other by itself."""
    return [_one(group[0], glyphs) if len(group) == 1 else _group(group, glyphs) for group in _groups(checks)]


def check_groups_in_brief(checks: Sequence[CheckResult], glyphs: Glyphs) -> list[Line]:
    """Return the groups without their counts, where a check stands by itself and says more."""
    groups = _groups(checks)
    if all(len(group) > 1 for group in groups):
        return check_groups(checks, glyphs)
    return [_one(group[0], glyphs) if len(group) == 1 else _group(group, glyphs)[:2] for group in groups]


def joined(parts: Sequence[Line]) -> Line:
    """Return the parts as one line."""
    return tuple(piece for part in parts for piece in (_GAP, *part))[1:]


def torch_differs(check: CheckResult) -> bool:
    """Tell whether torch's own check ran and came to another verdict."""
    return check.torch is not None and check.torch.verdict not in (Verdict.SKIP, check.verdict)


def check_counts(check: CheckResult) -> str:
    """Return what was compared and what came of it, as "12 entries, 2 wrong, 1 at a kink"."""
    parts = [counted(check.entries, "entry", "entries")] if check.entries else []
    parts += [f"{check.mismatched:,} wrong"] if check.mismatched else []
    parts += [f"{check.kinks:,} at a kink"] if check.kinks else []
    parts += [f"{check.undetermined:,} undetermined"] if check.undetermined else []
    return ", ".join(parts)


def check_cost(check: CheckResult) -> str:
    """Return how the check went about it: method, limit of detection and calls of user code."""
    parts = [check.method.value] if check.method else []
    single = check.method is not Method.PROBED or check.max_error > 0  # random sums say nothing of single entries
    if check.entries and single:
        bar = f" with error bars up to {numbers.at_least(check.max_error_bar, 1)}" if check.max_error_bar else ""
        parts.append(f"largest error {numbers.compact(check.max_error, 2)}{bar}")
    if check.detection_limit is not None:
        limit = numbers.at_least(check.detection_limit, 1)
        misses = check.detection_limit > 1
        parts.append("may miss any error of some entries" if misses else f"detects a relative error of {limit}")
    calls = check.evaluations
    if calls.forward or calls.backward:
        parts.append(f"{calls.forward:,} forward and {counted(calls.backward, 'backward call')}")
    return ", ".join(parts)


def second_opinion(check: CheckResult) -> str:
    """Return what torch's own derivative agrees with, "" if that is not known."""
    found = check.torch_derivative
    if found is None:
        return ""
    entries = "the worst entry" if found.entries == 1 else f"{found.entries} wrong entries of one output"
    precision = f"to {numbers.at_least(found.difference, 1)}" if found.difference else "exactly"
    text = f"torch's own derivative of the forward agrees with {found.agrees_with.value} in {entries}, {precision}"
    return f"{text}{_HIDDEN}" if found.agrees_with is AgreesWith.ANALYTIC else text


def _one(check: CheckResult, glyphs: Glyphs) -> Line:
    badge = badge_of(check.verdict, glyphs)
    torch = f" (torch: {check.torch.verdict.value})" if check.torch and torch_differs(check) else ""
    return line(span(badge.symbol, badge.style), f" {check.check}", span(_short_counts(check), DIM), torch)


def _groups(checks: Sequence[CheckResult]) -> list[list[CheckResult]]:
    groups: dict[object, list[CheckResult]] = {}
    for number, check in enumerate(checks):
        alone = check.verdict not in (Verdict.PASS, Verdict.ERROR) or torch_differs(check)
        groups.setdefault(number if alone else check.verdict, []).append(check)
    if len(groups) == len(checks):
        return [[check] for check in checks]
    return sorted(groups.values(), key=lambda group: group[0].verdict is Verdict.PASS)


def _group(checks: Sequence[CheckResult], glyphs: Glyphs) -> Line:
    badge = badge_of(checks[0].verdict, glyphs)
    entries = sum(check.entries for check in checks)
    empty = " 0 entries" if any(check.method is not None for check in checks) else ""
    counts = span(f" {entries:,}" if entries else empty, DIM)
    return line(span(badge.symbol, badge.style), f" {len(checks)} checks", counts)


def _short_counts(check: CheckResult) -> str:
    if not check.entries:
        return " 0 entries" if check.method is not None else ""
    wrong = check.mismatched or (check.undetermined if check.verdict is Verdict.INCONCLUSIVE else 0)
    return f" {wrong:,}/{check.entries:,}" if wrong else f" {check.entries:,}"
