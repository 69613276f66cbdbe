"""GV105: outputs that no gradient flows through, although they depend on the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.forward.length_scales import scales
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import scattered
from gradverify.core.model.problem import call
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_STEPS = (2.0**-9, 2.0**-11)  # relative to the length scale
_ALIKE = 1e-2  # difference quotients of both steps that agree so well are those of a derivative
_HEARD = 1e-9  # a rise above this part of the output is no rounding


def cut_off(steady: Repeatable) -> Iterator[Finding]:
    """Remark on floating outputs without a graph, beside others that have one, which vary smoothly with the inputs.

    Costs 4 forwards where there are any; says nothing where user code raises.
    """
    left = steady.tape.cut_off
    if not left:
        return
    direction = scattered(scales(steady.sampled).step, torch.Generator().manual_seed(0))
    try:
        sides = [_at(steady, direction * (sign * step), left) for step in _STEPS for sign in (1, -1)]
    except EvaluationError:
        return
    for name in left:
        smooth = _smooth([side.get(name) for side in sides])
        if smooth:
            text = (
                f"no gradient flows through {name}, which is declared non-differentiable, detached or"
                f" inside a container, but depends"
                f" smoothly on the inputs in {smooth} {'entry' if smooth == 1 else 'entries'}"
            )
            yield Finding(code="GV105", verdict=Verdict.PASS, of=name, message=text, total=smooth)


def _at(steady: Repeatable, displacement: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    primals = [primal.tensor for primal in steady.problem.primals]
    tensors = [tensor.clone() for tensor in unflatten(steady.sampled.point + displacement, primals)]
    with torch.no_grad():
        found = call(steady.problem, tensors)
    return {output.name: flatten([output.tensor]).clone() for output in found if output.name in names}


def _smooth(sides: Sequence[Tensor | None]) -> int:
    """Return how many entries rise at both steps by as much as a derivative makes them."""
    present = [side for side in sides if side is not None]
    if len(present) < len(sides) or len({side.shape for side in present}) > 1:
        return 0
    far, near = (present[0] - present[1]) / _STEPS[0], (present[2] - present[3]) / _STEPS[1]
    heard = (present[2] - present[3]).abs() > _HEARD * present[0].abs()
    return int(((far - near).abs() <= _ALIKE * near.abs()).logical_and(heard).sum())
