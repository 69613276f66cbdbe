"""Lines that the listing leaves out: a missing device or package skips many cases for one reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gradverify.result import CaseResult, Verdict

_LISTED = 3  # cases that are listed for each reason


def without_repeated_skips(cases: Iterable[CaseResult]) -> Iterator[CaseResult]:
    """Yield the cases, of those that are skipped as a whole only the first of each reason."""
    seen: Counter[str] = Counter()
    return (case for case in cases if not is_repeated_skip(case, seen))


def is_repeated_skip(case: CaseResult, seen: Counter[str]) -> bool:
    """Count a case that is skipped as a whole in `seen`, by its reason; True if enough of these are listed."""
    if case.verdict is not Verdict.SKIP or case.checks or not case.as_expected:
        return False
    seen[case.message] += 1
    return seen[case.message] > _LISTED


def unlisted(number: int) -> str:
    """Return, to end the line that counts `number` skips, how to see all of them; "" if all are listed."""
    return " (-v: all)" if number > _LISTED else ""
