"""GV408: what one call knows stays in that call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from torch import Tensor

from gradverify.checks.contract.subject import Subject, answer_of, graph_at, new_graph
from gradverify.checks.contract.wording import differences
from gradverify.core.problem import fresh
from gradverify.core.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding


def findings(subject: Subject) -> Iterator[Finding]:
    """GV408: a call between forward and backward changes nothing."""
    own = new_graph(subject)
    other = _elsewhere(subject)
    if other is None:
        return
    with suppress(EvaluationError):  # the other point need not have a gradient
        answer_of(subject, other, subject.cotangents)
    got = answer_of(subject, own, subject.cotangents)
    claim = "backward answers differently after another call in between: state is carried from one call to the next"
    yield from differences(subject, "GV408", claim, got, subject.answer)


def _elsewhere(subject: Subject) -> Tape | None:
    """Return a graph at another point: the same values in other places, or where that is no input, near by."""
    for moved in _MOVES:
        try:
            tape = graph_at(subject, [moved(primal.tensor) for primal in subject.primals])
        except EvaluationError:
            continue
        same = [output.tensor.shape for output in tape.outputs] == [c.shape for c in subject.cotangents]
        if same and all(bool(output.tensor.isfinite().all()) for output in tape.outputs):
            return tape
    return None


def _rolled(tensor: Tensor) -> Tensor:
    if tensor.numel() < 2 or bool((tensor == tensor.reshape(-1)[0]).all()):
        return _displaced(tensor)
    return tensor.reshape(-1).roll(1).reshape(tensor.shape)


def _displaced(tensor: Tensor) -> Tensor:
    return fresh(tensor).contiguous() * (1 + 2.0**-6)


_MOVES: tuple[Callable[[Tensor], Tensor], ...] = (_rolled, _displaced)
