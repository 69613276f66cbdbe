"""GV308 in gradcheck: if only one output is used, backward gets None as cotangent of the others.

The Jacobian is computed with zeros in place of None. A backward that gets None, as it does after
`set_materialize_grads(False)`, may return another gradient, which is then wrong whenever a loss uses one output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import as_coordinates
from gradverify.checks.contract.wording import SIMILAR_EXPONENT, raised
from gradverify.checks.wording import distinguishable
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.model.coordinates import coordinates_in, unflatten
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record, vjp
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_MOST = 6  # outputs that are tried, at most


def wrong_if_alone(repeatable: Repeatable, seed: int) -> Iterator[Finding]:
    """Yield a fail for every input whose gradient changes if a single output has a cotangent.

    Costs two forwards and vjps per output, if there are several. Raises EvaluationError.
    """
    outputs = [output for output in repeatable.tape.outputs if output.tensor.requires_grad]
    if len(outputs) < 2:
        return
    for output in outputs[:_MOST]:
        yield from _alone(repeatable.problem, output.name, seed)


def _alone(problem: Problem, name: str, seed: int) -> Iterator[Finding]:
    """Compare the gradients of one output with None, and with zeros, as cotangents of the others."""
    zeros = _gradients(problem, name, seed, among_zeros=True)
    where = f"where only {name} has a cotangent, backward gets None for the others"
    try:
        alone = _gradients(problem, name, seed, among_zeros=False)
    except EvaluationError as error:
        text = f"{where}: {raised(error)}"
        yield Finding(code="GV308", verdict=Verdict.FAIL, of=name, message=text)
        return
    for primal, got, expected in zip(problem.primals, alone, zeros, strict=True):
        deviation = (got - expected).abs()
        eps = torch.finfo(primal.tensor.dtype).eps
        wrong = expected.isfinite() & ~(deviation <= eps**SIMILAR_EXPONENT * largest(expected))
        if bool(wrong.any()):
            worst = int(torch.where(wrong, deviation.nan_to_num(torch.inf, torch.inf), -1.0).argmax())
            one, other = distinguishable(float(got[worst]), float(expected[worst]))
            text = f"{where}, and answers otherwise by {primal.name}: {one}, and {other} with zeros for them"
            yield Finding(
                code="GV308", verdict=Verdict.FAIL, of=name, wrt=primal.name, message=text, total=int(wrong.sum())
            )


def _gradients(problem: Problem, name: str, seed: int, *, among_zeros: bool) -> Sequence[Tensor]:
    """Return the gradients by the primals, each as coordinates, on a new graph."""
    tape = record(problem)
    tensors, selected = [output.tensor for output in tape.outputs], [output.name == name for output in tape.outputs]
    weights = torch.ones(sum(map(coordinates_in, tensors)), dtype=torch.float64, device=tensors[0].device)
    random = unflatten(random_magnitudes_from(weights, seed), tensors)
    if among_zeros:
        cotangents = [each if keep else torch.zeros_like(each) for each, keep in zip(random, selected, strict=True)]
    else:
        cotangents = [each for each, keep in zip(random, selected, strict=True) if keep]
        tape = replace(tape, outputs=tuple(each for each, keep in zip(tape.outputs, selected, strict=True) if keep))
    with torch.no_grad():
        grads = vjp(problem, tape, cotangents)
    return [as_coordinates(grad, primal.tensor) for primal, grad in zip(problem.primals, grads, strict=True)]
