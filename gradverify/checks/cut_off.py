"""GV105: outputs without a gradient although they depend on the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import scales
from gradverify.core.model.problem import call
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_STEPS = (2.0**-9, 2.0**-11)  # relative to the length scale
_ALIKE = 1e-2  # largest relative difference of the quotients at both steps that counts as a derivative
_ROUNDING = 1e-9  # relative to the output: smaller changes may be rounding


def cut_off(repeatable: Repeatable) -> Iterator[Finding]:
    """Yield a remark on each floating output without a graph that varies smoothly with the inputs.

    Only if other outputs have a graph. Costs 4 forwards if there are such outputs; yields nothing if user code raises.
    """
    names = repeatable.tape.cut_off
    if not names:
        return
    direction = random_magnitudes(
        scales(repeatable.sampled.point, repeatable.sampled.inputs).step, torch.Generator().manual_seed(0)
    )
    try:
        sides = [_at(repeatable, direction * (sign * step), names) for step in _STEPS for sign in (1, -1)]
    except EvaluationError:
        return
    for name in names:
        smooth = _smooth([side.get(name) for side in sides])
        if smooth:
            text = (
                f"no gradient flows through {name}, which is declared non-differentiable, detached or"
                f" inside a container, but depends"
                f" smoothly on the inputs in {smooth} {'entry' if smooth == 1 else 'entries'}"
            )
            yield Finding(code="GV105", verdict=Verdict.PASS, of=name, message=text, total=smooth)


def _at(repeatable: Repeatable, displacement: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the named outputs at a displaced point, as coordinates."""
    primals = [primal.tensor for primal in repeatable.problem.primals]
    with_graph = repeatable.sampled.with_graph  # a forward that takes a gradient itself raises without one
    with torch.set_grad_enabled(with_graph):
        points = unflatten(repeatable.sampled.point + displacement, primals)
        found = call(repeatable.problem, [point.requires_grad_(with_graph).clone() for point in points])
    return {output.name: flatten([output.tensor.detach()]).clone() for output in found if output.name in names}


def _smooth(sides: Sequence[Tensor | None]) -> int:
    """Return the number of entries whose difference quotients at both steps agree."""
    present = [side for side in sides if side is not None]
    if len(present) < len(sides) or len({side.shape for side in present}) > 1:
        return 0
    far, near = (present[0] - present[1]) / _STEPS[0], (present[2] - present[3]) / _STEPS[1]
    measurable = (present[2] - present[3]).abs() > _ROUNDING * present[0].abs()
    return int(((far - near).abs() <= _ALIKE * near.abs()).logical_and(measurable).sum())
