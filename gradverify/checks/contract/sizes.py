"""GV413: dimensions of size one, and empty ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Subject, answer_of, graph_at
from gradverify.checks.contract.wording import accusation, raised, remark
from gradverify.core.function.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_SIZES = 3  # different sizes that are replaced, at most


def findings(subject: Subject) -> Iterator[Finding]:
    """GV413: where forward accepts a dimension of size 1 or 0, backward does too; a size that is fixed is left out."""
    if not subject.hand_written or any(primal.project is not None for primal in subject.primals):
        return
    sizes = list(dict.fromkeys(size for primal in subject.primals for size in primal.tensor.shape if size > 1))
    for small, judge in ((1, accusation), (0, remark)):
        for size in sizes[:_SIZES]:
            error = _error(subject, size, small)
            if error is not None and _is_free(subject, size):
                text = f"dimensions of size {size} have size {small}, which forward accepts"
                yield judge("GV413", f"{raised(error)}, where {text}")
                return


def _error(subject: Subject, size: int, small: int) -> EvaluationError | None:
    """Return what backward raises at a part of the point, None where it does not or where forward refuses."""
    try:
        tape = graph_at(subject, [_resized(primal.tensor, size, small) for primal in subject.primals])
    except EvaluationError:
        return None
    if not tape.outputs or not _usual(tape):
        return None
    try:
        answer_of(subject, tape, [torch.ones_like(output.tensor) for output in tape.outputs])
    except EvaluationError as error:
        return error if error.stage == "backward" else None
    return None


def _usual(tape: Tape) -> bool:
    return all(bool(output.tensor.isfinite().all()) for output in tape.outputs)


def _is_free(subject: Subject, size: int) -> bool:
    """Tell whether forward takes another size too: one that does not takes 1 because what else it holds broadcasts."""
    other = size - 1 if size > 2 else size + 1
    try:
        graph_at(subject, [_resized(primal.tensor, size, other) for primal in subject.primals])
    except EvaluationError:
        return False
    return True


def _resized(tensor: Tensor, size: int, other: int) -> Tensor:
    places = torch.arange(other, device=tensor.device) % size
    for dimension, found in enumerate(tensor.shape):
        if found == size:
            tensor = tensor.index_select(dimension, places)
    return tensor.contiguous()
