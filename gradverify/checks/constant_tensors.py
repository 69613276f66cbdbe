"""GV404 in gradgradcheck: the second derivative does not depend on which tensors need a gradient."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.wording import raised
from gradverify.checks.wording import distinguishable
from gradverify.core.backward.vjps import Graph, Reuse, backward_of, flat_vjp
from gradverify.core.jacobians import Investigation
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record, vjp_problem
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_ALIKE = 1e-3  # of the largest entry: a vjp that is off by less is taken for rounding
_MAX_INPUTS = 6  # largest number of inputs that are tried alone


def wrong_by_constant_cotangents(accepted: Investigation, problem: Problem, sign: float) -> Finding | None:
    """Return a fail if the derivative by the inputs, times `sign`, is another one with constants for cotangents.

    `problem` is that of the vjp, at the cotangents of `accepted` times `sign`. Costs a vjp.
    """
    count = len(problem.primals) - problem.cotangents
    inputs, cotangents = problem.primals[:count], [primal.tensor for primal in problem.primals[count:]]
    constant = replace(problem, function=lambda *xs: problem.function(*xs, *cotangents), primals=inputs, cotangents=0)
    backward = replace(accepted.backward, problem=constant, tape=record(constant), graph=Graph(reuse=Reuse.SHARED))
    weights, expected = accepted.backward.known_vjp
    found = sign * flat_vjp(backward, weights)
    claim = "backward's own derivative is another one where its cotangents need no gradient, as in a gradient penalty"
    return _difference(accepted, torch.arange(len(found)), found, expected[: len(found)], claim)


def wrong_by_constant_inputs(accepted: Investigation, first: Problem, seed: int) -> Iterator[Finding]:
    """Yield a fail for each input by which the second derivative raises, or is another one, if it alone needs one.

    `first` is the problem whose vjp was judged, at cotangents from this seed. Costs two vjps of that for each input.
    """
    count = len(first.primals)
    if count < 2 or any(primal.like is not None for primal in first.primals):
        return
    for number, primal in enumerate(first.primals[:_MAX_INPUTS]):
        alone = replace(first, function=_with_constants(first, number), primals=(primal,))
        condition = f"where only {primal.name} needs a gradient"
        try:
            vjps = vjp_problem(alone, record(alone), seed)
            weights, found = backward_of(vjps, record(vjps), seed).known_vjp
        except EvaluationError as error:
            if error.stage == "backward":
                text = f"{raised(error)}, in the derivative of backward, {condition}"
                yield Finding(code="GV404", verdict=Verdict.FAIL, wrt=primal.name, message=text)
            continue
        places = _coordinates(accepted.sampled.inputs, {number, *range(count, len(accepted.sampled.inputs))})
        of_all = torch.zeros_like(accepted.backward.known_vjp[0])
        of_all[_coordinates(accepted.sampled.outputs, {number})] = weights
        expected = flat_vjp(accepted.backward, of_all)[places.to(found.device)]
        claim = f"backward's own derivative is another one {condition}"
        different = _difference(accepted, places, found, expected, claim)
        if different is not None:
            yield different


def _with_constants(problem: Problem, number: int) -> Callable[..., Any]:
    """Return the function of one primal, with the others as they are."""
    tensors = [each.tensor if each.project is None else each.project(each.tensor) for each in problem.primals]
    return lambda tensor: problem.function(*tensors[:number], tensor, *tensors[number + 1 :])


def _coordinates(blocks: Sequence[Block], tensors: Container[int]) -> Tensor:
    """Return the coordinates of the tensors with these numbers, in ascending order."""
    found = [torch.arange(block.start, block.stop, block.step) for block in blocks if block.tensor in tensors]
    return torch.cat(found).sort().values


def _difference(accepted: Investigation, places: Tensor, found: Tensor, expected: Tensor, claim: str) -> Finding | None:
    """Return a fail if two vjps differ by more than rounding; `places` are the coordinates of their entries."""
    off = (found - expected).abs().masked_fill(~expected.isfinite(), 0.0)
    if all_set(off <= _ALIKE * expected.abs().nan_to_num(0.0, 0.0, 0.0).max()):
        return None
    worst = int(off.nan_to_num(torch.inf).argmax())
    place = int(places[worst])
    block = next(each for each in accepted.sampled.inputs if place in range(each.start, each.stop, each.step))
    one, other = distinguishable(float(found[worst]), float(expected[worst]))
    text = f"{claim}: {one} by {block.name}, {other} otherwise"
    return Finding(code="GV404", verdict=Verdict.FAIL, wrt=block.name, message=text)
