"""GV403: an input may have any memory layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from torch import Tensor

from gradverify.checks.contract.forward_run import same_outputs
from gradverify.checks.contract.layouts import (
    channels_last,
    every_second,
    padded,
    rows_exchanged,
    sliced,
    strided,
    transposed,
)
from gradverify.checks.contract.nodes import Relay
from gradverify.checks.contract.subject import Subject, gradients_of, graph_at, graph_for_vjp, new_graph
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.interception import DrawTrace
from gradverify.result import Finding

_LAYOUTS: dict[str, Relay] = {
    "contiguous": lambda tensor: tensor.contiguous(),
    "transposed": transposed,
    "strided": strided,
    "rows of a wider tensor": padded,
    "transposed in their leading dimensions": rows_exchanged,
    "slices with an offset": sliced,
    "channels-last": channels_last,
}


def findings(subject: Subject) -> Iterator[Finding]:
    """GV403: the gradient does not depend on the inputs' strides and offsets; forward may reject some layouts.

    If none is found where all inputs are laid out alike, every second one is reordered.
    """
    tensors = [primal.tensor for primal in subject.primals]
    alike = {name: [layout(tensor) for tensor in tensors] for name, layout in _LAYOUTS.items()}
    unlike: dict[str, list[Tensor]] = {}
    for first in range(2) if len(tensors) > 1 else ():
        names = ", ".join(primal.name for primal in subject.primals[first::2])
        unlike[f"not laid out alike ({names} reordered)"] = list(map(every_second(first), tensors))
    yield from _all_compared(subject, alike) or _all_compared(subject, unlike)


def _all_compared(subject: Subject, variants: Mapping[str, list[Tensor]]) -> list[Finding]:
    """Return the findings at inputs in other layouts than the given ones, by what is said of them."""
    others = {name: points for name, points in variants.items() if not _has_given_layout(subject, points)}
    if not others:
        return []
    original = graph_for_vjp(subject)  # without a backward so far, which may overwrite the outputs
    return [finding for name, points in others.items() for finding in _compared(subject, original, name, points)]


def _has_given_layout(subject: Subject, points: list[Tensor]) -> bool:
    """True if these have the same strides and offsets as the primals."""
    return all(
        (point.stride(), point.storage_offset()) == (primal.tensor.stride(), primal.tensor.storage_offset())
        for point, primal in zip(points, subject.primals, strict=True)
    )


def _draws(subject: Subject) -> bool:
    """Return True if forward draws random numbers, under a seed of its own or of ours."""
    draws: list[Tensor] = []
    with DrawTrace(draws), suppress(EvaluationError):
        new_graph(subject)
    return bool(draws) or subject.problem.seed is not None


def _compared(subject: Subject, original: Tape, name: str, points: list[Tensor]) -> Iterator[Finding]:
    try:
        tape = graph_at(subject, points)
    except EvaluationError:
        return  # an explicit error is no wrong gradient
    if not same_outputs(subject, tape, original):
        if subject.hand_written and not _draws(subject):  # random numbers are drawn in the order of memory
            text = f"forward computes something else where the inputs are {name}"
            yield failure("GV403", f"{text}: read their strides, or call .contiguous()")
        return
    try:
        got = gradients_of(subject, tape, subject.cotangents)
    except EvaluationError as error:
        yield failure("GV403", f"{raised(error)}, where the inputs are {name}, which forward accepts")
        return
    yield from mismatches(
        subject, "GV403", f"backward answers differently where the inputs are {name}", got, subject.gradients
    )
