"""GV307: a cotangent may have any memory layout."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.checks.contract.layouts import LAYOUTS, every_second, expanded
from gradverify.checks.contract.nodes import Relay, custom_nodes, recorded_exchanges
from gradverify.checks.contract.subject import (
    Coordinates,
    Cotangents,
    Subject,
    gradients_for,
    gradients_of,
    graph_for_vjp,
    ones_like,
)
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.errors import EvaluationError
from gradverify.result import Finding


def findings(subject: Subject) -> Iterator[Finding]:
    """GV307: the gradient does not depend on the cotangent's strides, offset or conjugate bit."""
    found: list[Finding] = []
    for name, relay in LAYOUTS.items():
        if any(_applies(relay, cotangent) for cotangent in subject.cotangents):
            found += _compared(subject, name, relay, subject.cotangents, subject.gradients)
    found += _expanded(subject)
    if not found and len(subject.cotangents) > 1:
        for first, name in enumerate(("laid out unlike the second", "laid out unlike the first")):
            found += _compared(subject, name, every_second(first), subject.cotangents, subject.gradients)
    yield from found


def _expanded(subject: Subject) -> Iterator[Finding]:
    """The cotangents of `.mean()`, one number with stride 0, and of `.sum(0)` and `.sum(-1)`, equal slices."""
    halves = tuple(cotangent / 2 for cotangent in ones_like(subject))
    slices = tuple(g[:1].expand_as(g).contiguous() if g.dim() > 1 else g for g in subject.cotangents)
    last = tuple(g[..., :1].expand_as(g).contiguous() if g.dim() > 1 else g for g in subject.cotangents)
    for call, cotangents in ((".mean()", halves), (".sum(0)", slices), (".sum(-1)", last)):
        if any(_applies(expanded, cotangent) for cotangent in cotangents):
            name, expected = f"expanded (stride 0, as {call} sends it)", gradients_for(subject, cotangents)
            yield from _compared(subject, name, expanded, cotangents, expected)


def _compared(
    subject: Subject, name: str, relay: Relay, cotangents: Cotangents, expected: Coordinates
) -> Iterator[Finding]:
    try:
        got = _gradients(subject, cotangents, relay)
    except EvaluationError as error:
        yield failure("GV307", f"{raised(error)}, where the cotangent is {name}")
        return
    claim = f"backward answers differently where the cotangent is {name}"
    yield from mismatches(subject, "GV307", claim, got, expected)


def _gradients(subject: Subject, cotangents: Cotangents, relay: Relay) -> Coordinates:
    tape = graph_for_vjp(subject)
    with recorded_exchanges(custom_nodes(tape), relay):
        return gradients_of(subject, tape, cotangents)


def _applies(relay: Relay, cotangent: Tensor) -> bool:
    """Return True if the relay changes the cotangent's layout."""
    laid = relay(cotangent)
    described = (laid.stride(), laid.storage_offset(), laid.is_conj())
    return described != (cotangent.stride(), cotangent.storage_offset(), cotangent.is_conj())
