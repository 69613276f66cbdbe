"""GV308 as gradcheck meets it: an output that is used alone leaves the cotangents of the others undefined.

A Jacobian is asked for with zeros in place of them. A backward that is given None instead, as it is after
`set_materialize_grads(False)`, may answer otherwise, and then its gradient is wrong wherever a loss reads one output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import as_coordinates
from gradverify.checks.contract.wording import SIMILAR, raised
from gradverify.checks.wording import told_apart
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.model.coordinates import coordinates_in, unflatten
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record, vjp
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_MOST = 6  # outputs that are tried


def used_alone(steady: Repeatable, seed: int) -> Iterator[Finding]:
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
        text = f"{where}: {raised(error)}"
        yield Finding(code="GV308", verdict=Verdict.FAIL, of=name, message=text)
        return
    for primal, got, expected in zip(problem.primals, alone, zeros, strict=True):
        apart = (got - expected).abs()
        eps = torch.finfo(primal.tensor.dtype).eps
        wrong = expected.isfinite() & ~(apart <= eps**SIMILAR * largest(expected))
        if bool(wrong.any()):
            place = int(torch.where(wrong, apart.nan_to_num(torch.inf, torch.inf), -1.0).argmax())
            one, other = told_apart(float(got[place]), float(expected[place]))
            text = f"{where}, and answers otherwise by {primal.name}: {one}, and {other} with zeros for them"
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
    return [as_coordinates(answer, primal.tensor) for primal, answer in zip(problem.primals, answers, strict=True)]
