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
from gradverify.core.model.coordinates import entries_of, is_freed, is_special
from gradverify.core.model.problem import Problem, call, copies_of_fixed, fresh, holding
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.nested import Named

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes
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
        fixed_before = contents_of_fixed(subject.problem, fixed)
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


def contents_of_fixed(problem: Problem, copies: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Return what each tensor that is not differentiated holds, for `differs`.

    That is the original, which no call overwrites, and a snapshot only where the copy may share its memory.
    """
    return tuple(
        snapshot(copy) if copy is given.tensor or is_special(given.tensor) else entries_of(given.tensor)
        for given, copy in zip(problem.fixed.originals, copies, strict=True)
    )


def snapshot(tensor: Tensor) -> Tensor | None:
    """Return a copy of the stored values of a tensor; None if they cannot be read."""
    values = entries_of(tensor)
    return None if values is None else values.clone()


def differs(tensor: Tensor, before: Tensor | None) -> bool:
    """True if a tensor's stored values have other bits than those in `before`, or its memory was freed since.

    False if torch cannot compare them. Neither tensor is copied if both have the same shape.
    """
    if before is None:
        return False
    if is_freed(tensor):
        return True
    after = entries_of(tensor)
    try:
        return after is not None and not _same_bits(after, before)
    except RuntimeError:  # a tensor on `meta` has no values
        return False


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype:
        return False
    if one.shape != other.shape:
        one, other = one.reshape(-1), other.reshape(-1)
    return torch.equal(_bits(one), _bits(other))


def _bits(values: Tensor) -> Tensor:
    real = torch.view_as_real(values) if values.is_complex() else values
    return real.view(_INTEGERS[real.element_size()])


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
