"""All questions of the contract check: a fast run first, and a full run if the fast one finds anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from gradverify.checks import batching, forward_ad
from gradverify.checks.contract import (
    aliased,
    backward_writes,
    cotangent_layouts,
    cotangent_writes,
    forward_writes,
    input_layouts,
    kept_alive,
    linearity,
    needs_input_grad,
    precision,
    repeats,
    returned,
    second_order,
    sizes,
    state,
    undefined,
    uninitialised,
)
from gradverify.checks.contract.casts import Casts, casts_of
from gradverify.checks.contract.noise import measured_noise, with_noise
from gradverify.checks.contract.repeats import repeated_gradients, rounding_spread
from gradverify.checks.contract.subject import Subject, new_graph
from gradverify.checks.contract.wording import raised
from gradverify.core.backward.vjps import Reuse
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

Question = Callable[[Subject], Iterator[Finding]]

# The first need one graph only; the second need a forward that is repeatable.
SHARED_GRAPH_QUESTIONS: tuple[Question, ...] = (
    linearity.zero_for_zero,
    linearity.one_output_at_a_time,
    linearity.combination,
    linearity.entries_split,
    cotangent_writes.findings,
    cotangent_layouts.findings,
    undefined.findings,
    returned.findings,
)
FRESH_GRAPH_QUESTIONS: tuple[Question, ...] = (
    forward_writes.findings,
    backward_writes.findings,
    input_layouts.findings,
    needs_input_grad.findings,
    aliased.findings,
    state.findings,
    uninitialised.findings,
    kept_alive.findings,
    sizes.findings,
    second_order.findings,
)


def all_findings(subject: Subject) -> Iterator[Finding]:
    """Yield the findings of every question; raises EvaluationError."""
    if subject.reuse is Reuse.SHARED:
        yield from _findings_of(subject, SHARED_GRAPH_QUESTIONS)
        return
    casts = casts_of(subject)
    found = None if casts.dtypes else _fast_run(subject)
    yield from _full_run(subject, casts) if found is None else found


def _fast_run(subject: Subject) -> tuple[Finding, ...] | None:
    """Return the findings of a run without noise measurement, on one graph if possible; None if a question fails.

    A failure here may come from noise or from a graph that serves one backward only, so `_full_run` repeats it. A pass
    is final, because the tolerances are tighter here.
    """
    shared = replace(subject, reuse=Reuse.SHARED, tape=new_graph(subject))
    try:
        repeated = repeated_gradients(shared)
    except EvaluationError:
        return None
    spread = rounding_spread(subject, repeated)
    found: list[Finding] = []
    for finding in chain(
        repeats.findings(subject, repeated),
        _findings_of(replace(shared, noise=spread), SHARED_GRAPH_QUESTIONS),
        _on_many_graphs(replace(subject, noise=spread)),
    ):
        if finding.verdict is not Verdict.PASS:
            return None
        found.append(finding)
    return tuple(found)


def _full_run(subject: Subject, casts: Casts) -> Iterator[Finding]:
    """Yield the findings with the noise measured and a new graph for every vjp."""
    repeated = repeated_gradients(subject)
    yield from repeats.findings(subject, repeated)
    noise = measured_noise(subject, casts.dtypes)
    subject = with_noise(subject, noise, rounding_spread(subject, repeated), casts.dtypes)
    yield from _findings_of(subject, SHARED_GRAPH_QUESTIONS)
    yield from _on_many_graphs(subject)
    yield from precision.findings(subject, noise, casts)


def _on_many_graphs(subject: Subject) -> Iterator[Finding]:
    yield from _findings_of(subject, FRESH_GRAPH_QUESTIONS)
    if forward_ad.defines_jvp(subject.tape):
        yield from forward_ad.findings(subject)
    if batching.defines_vmap(subject.tape):
        yield from batching.findings(subject)


def _findings_of(subject: Subject, questions: Iterable[Question]) -> Iterator[Finding]:
    for question in questions:
        try:
            yield from question(subject)
        except EvaluationError as error:
            code = "GV903" if error.stage == "backward" else "GV902"
            yield Finding(code=code, verdict=Verdict.ERROR, message=f"{raised(error)}, though it did not before")
