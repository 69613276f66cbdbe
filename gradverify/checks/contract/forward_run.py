"""One forward on tensors that are compared with snapshots afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.marked_dirty import is_known_to_change, marked_dirty
from gradverify.checks.contract.noise import displaced
from gradverify.checks.contract.subject import Subject, graph_at, judged_outputs
from gradverify.core.model.coordinates import Named, entries_of, is_freed
from gradverify.core.model.problem import call, copies_of_fixed, fresh, holding
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError

_MOVES = 4  # of the inputs by rounding
_FEW = 4.0  # times the largest change that these show: they are few, and the sums are several


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRun:
    """One forward: its inputs, snapshots of them, and its outputs."""

    tape: Tape
    tensors: tuple[Tensor, ...]  # inputs of forward: copies of the leaves, which it may overwrite
    before: tuple[Tensor | None, ...]  # snapshots of the inputs before the call
    nodes: tuple[Any, ...]  # grad_fn of the inputs before the call
    outputs: tuple[Named, ...]  # every output, also those without a gradient
    fixed: tuple[Tensor, ...]  # inputs that are not differentiated, after the call
    modified: tuple[int, ...]  # numbers of those that forward overwrote and did not mark dirty


def run_forward(subject: Subject) -> ForwardRun:
    """Run the forward on differentiable copies of fresh leaves; raises EvaluationError."""
    leaves = tuple(fresh(primal.tensor).requires_grad_() for primal in subject.primals)
    with torch.enable_grad():
        tensors = tuple(leaf.clone() for leaf in leaves)
        before = tuple(snapshot(tensor) for tensor in tensors)
        nodes = tuple(tensor.grad_fn for tensor in tensors)
        fixed = copies_of_fixed(subject.problem)
        fixed_before = tuple(snapshot(tensor) for tensor in fixed)
        with holding(subject.problem, fixed), marked_dirty() as dirty:
            outputs = call(subject.problem, tensors)
    modified = (number for number, before in enumerate(fixed_before) if differs(fixed[number], before))
    tape = Tape(leaves=leaves, outputs=judged_outputs(subject, outputs), copied=subject.tape.copied)
    return ForwardRun(
        tape=tape,
        tensors=tensors,
        before=before,
        nodes=nodes,
        outputs=outputs,
        fixed=fixed,
        modified=tuple(number for number in modified if not is_known_to_change(fixed[number], dirty)),
    )


def snapshot(tensor: Tensor) -> Tensor | None:
    """Return a copy of the bytes of a tensor's values, uint8; None if they cannot be read."""
    values = entries_of(tensor)
    try:
        return None if values is None else _copied_bytes(values)
    except RuntimeError:  # not implemented on its device
        return None


def differs(tensor: Tensor, before: Tensor | None) -> bool:
    """True if a tensor has other bytes than its snapshot, or its memory was freed since; False if torch cannot tell."""
    if before is None:
        return False
    if is_freed(tensor):
        return True
    after = entries_of(tensor)
    try:
        return after is not None and not torch.equal(_copied_bytes(after), before)
    except RuntimeError:  # a tensor on `meta` has no values
        return False


def _copied_bytes(values: Tensor) -> Tensor:
    return values.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


def same_outputs(subject: Subject, tape: Tape, other: Tape) -> bool:
    """True if two graphs have the same outputs, within eps**0.5 of the largest entry of each.

    eps is that of the coarsest dtype in the computation, once casts are measured. Outputs that cancel may differ by
    more in another order of summation: as much as rounding of the inputs changes them.
    """
    if len(tape.outputs) != len(other.outputs):
        return False
    rtol = max(torch.finfo(dtype).eps for dtype in subject.dtypes) ** 0.5
    pairs = [(one.tensor.detach(), two.tensor.detach()) for one, two in zip(tape.outputs, other.outputs, strict=True)]
    if any(one.shape != two.shape for one, two in pairs):
        return False
    allowed = [rtol * _largest(two) for _, two in pairs]
    if _all_close(pairs, allowed):
        return True
    rounding = _by_rounding_of_inputs(subject)
    return len(rounding) == len(allowed) and _all_close(pairs, list(map(max, allowed, rounding)))


def _all_close(pairs: Sequence[tuple[Tensor, Tensor]], allowed: Sequence[float]) -> bool:
    return all(
        torch.allclose(one, two, rtol=0.0, atol=atol, equal_nan=True)
        for (one, two), atol in zip(pairs, allowed, strict=True)
    )


def _largest(values: Tensor) -> float:
    return float(values.abs().nan_to_num(0.0, 0.0, 0.0).amax()) if values.numel() else 0.0


def _by_rounding_of_inputs(subject: Subject) -> list[float]:
    """Return how far rounding may change each output, from inputs that move by up to eps; () if forward raises.

    Moves of n inputs average to 1 / n**0.5 of one in their sum, and the rounding of the sum does not.
    """
    eps = max(torch.finfo(dtype).eps for dtype in subject.dtypes)
    terms = max((primal.tensor.numel() for primal in subject.primals), default=1)
    points = [primal.tensor for primal in subject.primals]
    try:
        known = graph_at(subject, points).outputs
        moved = [
            graph_at(subject, displaced(points, 2 * eps, subject.settings.seed + n)).outputs for n in range(_MOVES)
        ]
    except EvaluationError:
        return []
    if any(len(each) != len(known) for each in moved):
        return []
    changes = (
        [_largest(a.tensor.detach() - b.tensor.detach()) for a, b in zip(each, known, strict=True)] for each in moved
    )
    return [_FEW * terms**0.5 * max(column) for column in zip(*changes, strict=True)]
