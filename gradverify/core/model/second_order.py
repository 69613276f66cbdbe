"""Second order: the vjp of a problem as a problem of its own."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.model.problem import Primal, Problem
from gradverify.core.model.tape import Tape, call_on_leaves, has_once_differentiable, vjp_of


def vjp_problem(problem: Problem, tape: Tape, seed: int) -> Problem:
    """Return the problem (primals, cotangents) -> vjp, with random cotangents as further primals.

    Verifying it compares the derivative of backward with differences of backward, not of forward: a wrong first
    derivative that is differentiated correctly passes. A gradient that is None becomes an output of zeros.
    """
    cotangents = _cotangents(tape, seed)
    names = tuple(output.name for output in tape.outputs)
    primal_count = len(problem.primals)

    def function(*tensors: Tensor) -> dict[str, Tensor]:
        differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        points = [_leaf(tensor) for tensor in tensors[:primal_count]]
        with torch.enable_grad():
            found = {output.name: output.tensor for output in call_on_leaves(problem, points, tape.passing)}
        outputs = [found[name] for name in names]
        grads = vjp_of(problem, points, outputs, tensors[primal_count:], differentiable=differentiable)
        return {
            f"grad {primal.name}": torch.zeros_like(point) if grad is None else grad
            for primal, point, grad in zip(problem.primals, points, grads, strict=True)
        }

    return replace(
        problem,
        function=function,
        primals=(*(replace(primal, like=None) for primal in problem.primals), *cotangents),  # `call` restores classes
        outputs=None,
        seed=None,
        order=2,
        cotangents=len(cotangents),
        output="",
    )


def once_differentiable(vjps: Tape) -> bool:
    """Return True if a backward in the graph of a recorded vjp is decorated with `@once_differentiable`."""
    return has_once_differentiable([output.tensor for output in vjps.outputs])


def _cotangents(tape: Tape, seed: int) -> tuple[Primal, ...]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for output in tape.outputs:
        values = torch.randn(output.tensor.shape, generator=generator, dtype=_wide(output.tensor.dtype))
        name = output.name.replace("output", "cotangent", 1) if output.name.startswith("output") else output.name
        found.append(Primal(name=name, tensor=values.to(device=output.tensor.device, dtype=output.tensor.dtype)))
    return tuple(found)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _leaf(tensor: Tensor) -> Tensor:
    return tensor if tensor.requires_grad else tensor.detach().requires_grad_()
