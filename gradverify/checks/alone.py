"""GV308 as gradcheck meets it: an output that is used alone leaves the cotangents of the others undefined.

A Jacobian is asked for with zeros in place of them. A backward that is given None instead, as it is after
`set_materialize_grads(False)`, may answer otherwise, and then its gradient is wrong wherever a loss reads one output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered_from
from gradverify.core.function.coordinates import coordinates_in, flatten, unflatten
from gradverify.core.function.problem import Problem
from gradverify.core.function.steady import Steady
from gradverify.core.function.tape import record, vjp
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_MOST = 6  # outputs that are tried
_SIMILAR = 0.5  # the power of eps that answers may be apart by, beside the largest


def used_alone(steady: Steady, seed: int) -> Iterator[Finding]:
    """Accuse backward by every input whose gradient is another one where a single output has a cotangent.

    Costs two forwards and vjps per output, where there are several of them. Raises EvaluationError.
    """
    outputs = [output for output in steady.tape.outputs if output.tensor.requires_grad]
    if len(outputs) < 2:
        return
    for output in outputs[:_MOST]:
        yield from _alone(steady.problem, output.name, seed)


def _alone(problem: Problem, name: str, seed: int) -> Iterator[Finding]:
    """Ask for one output alone, and with zeros for the others."""
    zeros = _asked(problem, name, seed, among_zeros=True)
    where = f"where only {name} has a cotangent, backward gets None for the others"
    try:
        alone = _asked(problem, name, seed, among_zeros=False)
    except EvaluationError as error:
        text = f"{where}, and raises {type(error.original).__name__}: {error.original}"
        yield Finding(code="GV308", verdict=Verdict.FAIL, of=name, message=text)
        return
    for primal, got, expected in zip(problem.primals, alone, zeros, strict=True):
        apart = (got - expected).abs()
        eps = torch.finfo(primal.tensor.dtype).eps
        largest = float(expected.abs().nan_to_num(0.0, 0.0, 0.0).max()) if len(expected) else 0.0
        wrong = expected.isfinite() & ~(apart <= eps**_SIMILAR * largest)
        if bool(wrong.any()):
            place = int(torch.where(wrong, apart.nan_to_num(torch.inf, torch.inf), -1.0).argmax())
            text = (
                f"{where}, and answers otherwise by {primal.name}: {float(got[place]):.6g}, and"
                f" {float(expected[place]):.6g} with zeros for them"
            )
            yield Finding(
                code="GV308", verdict=Verdict.FAIL, of=name, wrt=primal.name, message=text, total=int(wrong.sum())
            )


def _asked(problem: Problem, name: str, seed: int, *, among_zeros: bool) -> Sequence[Tensor]:
    """Return the gradients by the primals, each as coordinates, on a graph of their own."""
    tape = record(problem)
    tensors, mine = [output.tensor for output in tape.outputs], [output.name == name for output in tape.outputs]
    weights = torch.ones(sum(map(coordinates_in, tensors)), dtype=torch.float64, device=tensors[0].device)
    random = unflatten(scattered_from(weights, seed), tensors)
    if among_zeros:
        cotangents = [each if own else torch.zeros_like(each) for each, own in zip(random, mine, strict=True)]
    else:
        cotangents = [each for each, own in zip(random, mine, strict=True) if own]
        tape = replace(tape, outputs=tuple(each for each, own in zip(tape.outputs, mine, strict=True) if own))
    with torch.no_grad():
        answers = vjp(problem, tape, cotangents)
    return [
        flatten([torch.zeros_like(primal.tensor) if answer is None else _dense(answer)])
        for primal, answer in zip(problem.primals, answers, strict=True)
    ]


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.layout is not torch.strided else gradient
