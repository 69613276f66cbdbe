"""Replace the backward of a right function by a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import Meter, Problem, call

Claim = Callable[[Tensor], Tensor]  # cotangent (m,) -> gradient (n,), both as real coordinates


class _Planted(Function):
    @staticmethod
    def forward(ctx: Any, right: Problem, kept: Sequence[str], claim: Claim, *tensors: Tensor) -> tuple[Tensor, ...]:
        found = {named.name: named.tensor for named in call(right, [tensor.clone() for tensor in tensors])}
        results = tuple(found[name].detach().clone() for name in kept)
        ctx.claim, ctx.outputs, ctx.inputs = claim, results, tensors
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Any, ...]:
        given = [
            torch.zeros_like(output) if cotangent is None else cotangent
            for output, cotangent in zip(ctx.outputs, cotangents, strict=True)
        ]
        return None, None, None, *unflatten(ctx.claim(flatten(given)), ctx.inputs)


def planted(right: Problem, kept: Sequence[str], claim: Claim) -> Problem:
    """Return the problem with `claim` as its backward; `kept` names the outputs that it keeps."""
    return replace(
        right,
        function=partial(_Planted.apply, right, kept, claim),
        output="output",
        meter=Meter(),
    )


def linear(wrong: Tensor) -> Claim:
    """Return the backward whose Jacobian is `wrong`, (m, n)."""
    return lambda cotangent: cotangent @ wrong


def claimed_jacobian(claim: Claim, outputs: int) -> Tensor:
    """Return the Jacobian that `claim` computes from one-hot cotangents, (m, n)."""
    return torch.stack([claim(row) for row in torch.eye(outputs, dtype=torch.float64)])
