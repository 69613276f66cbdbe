"""One check's answer in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.report import numbers
from gradverify.report.lines import DIM, Line, Span, line, span
from gradverify.report.screen import Glyphs
from gradverify.report.words import badge_of, counted
from gradverify.result import CheckResult, Verdict


def every_check(checks: Sequence[CheckResult], glyphs: Glyphs) -> Line:
    """Return each check's sign, name and counts."""
    return _joined([_one(check, glyphs) for check in checks])


def checks_in_groups(checks: Sequence[CheckResult], glyphs: Glyphs) -> Line:
    """Return the passed checks as one group and every other check by itself."""
    passed = [check for check in checks if check.verdict is Verdict.PASS and not torch_differs(check)]
    others = [check for check in checks if check not in passed]
    if len(passed) < 2:
        return every_check(checks, glyphs)
    badge = badge_of(Verdict.PASS, glyphs)
    entries = sum(check.entries for check in passed)
    group = line(
        span(badge.symbol, badge.style), f" {len(passed)} checks", span(f" {entries:,}" if entries else "", DIM)
    )
    return _joined([*(_one(check, glyphs) for check in others), group])


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
    if check.entries:
        bar = f" with error bars up to {numbers.at_least(check.max_error_bar, 1)}" if check.max_error_bar else ""
        parts.append(f"largest error {numbers.compact(check.max_error, 2)}{bar}")
    if check.detection_limit is not None:
        parts.append(f"detects a relative error of {numbers.at_least(check.detection_limit, 1)}")
    calls = check.evaluations
    if calls.forward or calls.backward:
        parts.append(f"{calls.forward:,} forward and {counted(calls.backward, 'backward call')}")
    return ", ".join(parts)


def _one(check: CheckResult, glyphs: Glyphs) -> Line:
    badge = badge_of(check.verdict, glyphs)
    torch = f" (torch: {check.torch.verdict.value})" if check.torch and torch_differs(check) else ""
    return line(span(badge.symbol, badge.style), f" {check.check}", span(_short_counts(check), DIM), torch)


def _short_counts(check: CheckResult) -> str:
    if not check.entries:
        return " 0 entries" if check.method is not None else ""
    wrong = check.mismatched or (check.undetermined if check.verdict is Verdict.INCONCLUSIVE else 0)
    return f" {wrong:,}/{check.entries:,}" if wrong else f" {check.entries:,}"


def _joined(parts: Sequence[Line]) -> Line:
    gap: Span = span("  ")
    return tuple(piece for part in parts for piece in (gap, *part))[1:]
