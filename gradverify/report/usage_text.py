"""Memory and time of a case in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradverify.report import numbers
from gradverify.report.lines import DIM, HEAD, Line, indented, line, span
from gradverify.report.safe import fold, safe
from gradverify.result import CaseResult
from gradverify.size import bytes_text
from gradverify.usage import Measured


def usage_facts(case: CaseResult) -> tuple[tuple[str, str], ...]:
    """Return `memory` and `time` with what was measured; nothing for memory that is all equal, unless it is claimed."""
    measured = case.measured
    if measured is None or measured.function is None:
        return ()
    facts = (("memory", "; ".join(_memory(measured))), ("time", "; ".join(_time(measured))))
    return tuple((name, text) for name, text in facts if text)


def usage_lines(case: CaseResult, width: int) -> list[Line]:
    """Return the facts as lines of at most `width` columns."""
    return [line(span(row, DIM)) for name, text in usage_facts(case) for row in fold(f"{name}: {safe(text)}", width)]


def asked_usage_lines(cases: Iterable[CaseResult], width: int) -> list[Line]:
    """Return the facts of every case whose spec makes a claim about them, or that was timed."""
    rows: list[Line] = []
    for case in asked_for_usage(cases):
        rows += [line("  ", safe(case.id)), *indented(usage_lines(case, width - 4), 4)]
    return [line(span("memory and time:", HEAD)), *rows] if rows else []


def asked_for_usage(cases: Iterable[CaseResult]) -> list[CaseResult]:
    """Return the cases with facts whose spec makes a claim about them, or that were timed."""
    return [case for case in cases if case.measured and _is_asked(case.measured) and usage_facts(case)]


def _is_asked(measured: Measured) -> bool:
    return bool(measured.claim) or (measured.function is not None and measured.function.forward_seconds is not None)


def _memory(measured: Measured) -> Iterator[str]:
    own, other, beside = measured.function, measured.other, measured.compared_with.value
    assert own is not None, "the caller returns nothing then"
    claim = f" (expected {measured.claim})" if measured.claim else ""
    if other is None:
        if claim:
            yield f"keeps {bytes_text(own.saved_bytes)} for backward{claim}"
        return
    same_peak, same_saved = own.peak_bytes == other.peak_bytes, own.saved_bytes == other.saved_bytes
    if claim or not (same_peak and same_saved):
        theirs = f"as {beside} does" if same_saved else f"{beside} {bytes_text(other.saved_bytes)}"
        yield f"keeps {bytes_text(own.saved_bytes)} for backward, {theirs}{claim}"
    if not same_peak:
        yield f"peak {bytes_text(own.peak_bytes)}, {beside} {bytes_text(other.peak_bytes)}"


def _time(measured: Measured) -> Iterator[str]:
    own, other, beside = measured.function, measured.other, measured.compared_with.value
    assert own is not None, "the caller returns nothing then"
    theirs = (None, None) if other is None else (other.forward_seconds, other.backward_seconds)
    for name, seconds, reference in zip(
        ("forward", "backward"), (own.forward_seconds, own.backward_seconds), theirs, strict=True
    ):
        if seconds is not None:
            yield f"{name} {_milliseconds(seconds)}" + (
                f", {beside} {_milliseconds(reference)}" if reference is not None else ""
            )


def _milliseconds(seconds: float) -> str:
    return f"{numbers.compact(1000 * seconds)} ms"
