"""One forward on tensors that are compared with snapshots afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Subject, judged_outputs
from gradverify.core.model.problem import Named, call, fresh
from gradverify.core.model.tape import Tape
from gradverify.core.model.tensor_kinds import entries_of, is_freed


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRun:
    """One forward: its inputs, snapshots of them, and its outputs."""

    tape: Tape
    tensors: tuple[Tensor, ...]  # inputs of forward: copies of the leaves, which it may overwrite
    before: tuple[Tensor | None, ...]  # snapshots of the inputs before the call
    nodes: tuple[Any, ...]  # grad_fn of the inputs before the call
    outputs: tuple[Named, ...]  # every output, also those without a gradient


def run_forward(subject: Subject) -> ForwardRun:
    """Run the forward on differentiable copies of fresh leaves; raises EvaluationError."""
    leaves = tuple(fresh(primal.tensor).requires_grad_() for primal in subject.primals)
    with torch.enable_grad():
        tensors = tuple(leaf.clone() for leaf in leaves)
        before = tuple(snapshot(tensor) for tensor in tensors)
        nodes = tuple(tensor.grad_fn for tensor in tensors)
        outputs = call(subject.problem, tensors)
    tape = Tape(leaves=leaves, outputs=judged_outputs(subject, outputs), copied=subject.tape.copied)
    return ForwardRun(tape=tape, tensors=tensors, before=before, nodes=nodes, outputs=outputs)


def snapshot(tensor: Tensor) -> Tensor | None:
    """Return a copy of the bytes of a tensor's values, uint8; None if they cannot be read."""
    values = entries_of(tensor)
    return None if values is None else _copied_bytes(values)


def differs(tensor: Tensor, before: Tensor | None) -> bool:
    """True if a tensor has other bytes than its snapshot, or its memory was freed since."""
    if before is None:
        return False
    after = entries_of(tensor)
    return is_freed(tensor) or (after is not None and not torch.equal(_copied_bytes(after), before))


def _copied_bytes(values: Tensor) -> Tensor:
    return values.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


def same_outputs(subject: Subject, tape: Tape, other: Tape) -> bool:
    """True if two graphs have the same outputs, within eps**0.5 of the largest entry of each.

    eps is that of the coarsest dtype in the computation, once casts are measured.
    """
    rtol = max(torch.finfo(dtype).eps for dtype in subject.dtypes) ** 0.5
    pairs = list(zip(tape.outputs, other.outputs, strict=False))
    return len(tape.outputs) == len(other.outputs) and all(_close(one.tensor, two.tensor, rtol) for one, two in pairs)


def _close(one: Tensor, other: Tensor, rtol: float) -> bool:
    if one.shape != other.shape:
        return False
    size = other.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax().item() if other.numel() else 0.0
    return torch.allclose(one.detach(), other.detach(), rtol=0.0, atol=rtol * size, equal_nan=True)
