"""What the inputs did not exercise, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradverify.report.safe import safe, shortened
from gradverify.report.screen import UNICODE, Detail, Glyphs
from gradverify.result import CaseResult, Side, Uncovered, Verdict

_LISTED = 5  # entries without -v, and on the page
_LONGEST = 72  # columns of code in one entry
_SAYS = {
    Side.TRUE: "was never true",
    Side.FALSE: "was never false",
    Side.BELOW: "met no value below its bound",
    Side.ABOVE: "met no value above its bound",
    Side.WITHIN: "met no value within its bound",
    Side.RUN: "never ran",
    Side.DIFFERENTIATED: "held integers and was not differentiated, though backward returns a gradient for it"
    " (1.0 is a number that is differentiated, 1 is not)",
}


def uncovered_texts(cases: Iterable[CaseResult], detail: Detail, glyphs: Glyphs) -> list[str]:
    """Return one sentence for each entry that no case of its function exercised; none where detail is QUIET."""
    found = _in_every_case(cases) if detail is not Detail.QUIET else []
    kept = found if detail is Detail.VERBOSE else found[:_LISTED]
    rest = [f"and {len(found) - len(kept):,} more: -v"] if len(kept) < len(found) else []
    return [*(f"not exercised: {_sentence(entry, glyphs)}" for entry in kept), *rest]


def uncovered_of(case: CaseResult) -> tuple[Uncovered, ...]:
    """Return what the inputs of a case did not exercise; if they were changed, what no try did either."""
    return case.explored.uncovered if case.explored is not None and case.explored.tries else case.uncovered


def uncovered_facts(uncovered: Sequence[Uncovered]) -> list[tuple[str, str]]:
    """Return what the inputs of one case did not exercise, as facts for the page."""
    texts = [_sentence(entry, UNICODE) for entry in uncovered[:_LISTED]]
    more = len(uncovered) - len(texts)
    return [("not exercised", text) for text in [*texts, *([f"and {more:,} more"] if more else [])]]


def _in_every_case(cases: Iterable[CaseResult]) -> list[Uncovered]:
    """Return the entries that all cases of the same function share, by file and line."""
    shared: dict[object, set[Uncovered]] = {}
    for case in cases:
        if case.verdict not in (Verdict.SKIP, Verdict.ERROR):
            function = case.source or case.function
            entries = {*uncovered_of(case)}
            shared[function] = shared[function] & entries if function in shared else entries
    found = {entry for entries in shared.values() for entry in entries}
    return sorted(found, key=lambda entry: (entry.file, entry.line, entry.text, entry.never))


def _sentence(entry: Uncovered, glyphs: Glyphs) -> str:
    text = shortened(safe(entry.text), _LONGEST, glyphs.ellipsis)
    return f"`{text}` in {safe(entry.within)} at {safe(entry.file)}:{entry.line} {_SAYS[entry.never]}"
