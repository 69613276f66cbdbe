"""At a kink, backward returns a number that lies outside the slopes on both sides."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.moved import outputs_at
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.constants import number
from gradverify.diagnosis.naming.variables import coordinates
from gradverify.diagnosis.naming.wording import place

OUTSIDE_SLOPES = "outside-slopes"
_STEPS = (2.0**-12, 2.0**-13)  # of the input's size: extrapolated, they leave a relative error of some 1e-7
_STEADY = 1e-3  # relative to the larger slope: more between the steps is a kink beside the point, or a bend
_SAME = 1e-4  # relative to the larger slope: slopes that are one, and a claim that is not outside
_MOST = 256  # inputs that are moved; of more, nothing is said
_SHORT = 5  # digits of a slope that is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slopes:
    """The one-sided derivatives of the wrong entries by one input, (k,) each."""

    low: Tensor
    high: Tensor
    unsteady: Tensor  # what the quotients change by from one step to the next


def outside_slopes(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every wrong entry is at a kink, and its claim lies below or above the derivatives of both sides."""
    inputs = seen.wrong.any(0).nonzero().flatten().tolist()
    if len(inputs) > _MOST:
        return None
    worst: tuple[float, str] = (0.0, "")
    for column in inputs:
        rows = seen.wrong[:, column].nonzero().flatten()
        slopes = _slopes(evidence, column, rows)
        if slopes is None:
            return None
        claimed = seen.claimed[rows, column]
        size = torch.maximum(slopes.low.abs(), slopes.high.abs())
        outside = torch.maximum(slopes.low - claimed, claimed - slopes.high)
        kinked = (slopes.high - slopes.low > _SAME * size) & (slopes.unsteady <= _STEADY * size)
        nearest = (claimed.clamp(slopes.low, slopes.high) - seen.numeric[rows, column]).abs() <= _SAME * size
        if not bool((kinked & nearest & (outside > _SAME * size)).all()):
            return None
        at = int(outside.argmax())
        if float(outside[at]) > worst[0]:
            says = [number(float(f"{float(each[at]):.{_SHORT}g}")) for each in (claimed, slopes.low, slopes.high)]
            where = f"{place(evidence.of, int(rows[at]))} by {place(evidence.wrt, column)}"
            worst = float(outside[at]), f"backward says {says[0]}, the slopes are {says[1]} and {says[2]} ({where})"
    others = int(seen.wrong.sum()) - 1
    more = f"; {others} more wrong {'entry lies' if others == 1 else 'entries lie'} outside both slopes at a kink"
    return Diagnosis(cause=OUTSIDE_SLOPES, explanation=f"at a kink: {worst[1]}{more if others else ''}", share=1.0)


def _slopes(evidence: Evidence, column: int, rows: Tensor) -> _Slopes | None:
    """Return the one-sided derivatives of some outputs by an input, None where forward fails on one side."""
    point, value = coordinates(evidence)
    here, start = point[evidence.wrt.coordinates], value[evidence.of.coordinates][rows]
    size = float(here[column].abs()) or float(here.abs().max()) or 1.0
    sides, changes = [], []
    for sign in (-1.0, 1.0):
        quotients = []
        for step in _STEPS:
            move = torch.zeros_like(here)
            move[column] = sign * step * size
            there = outputs_at(evidence, here + move)
            if there is None:
                return None
            quotients.append((there[rows] - start) / (sign * step * size))
        sides.append(2 * quotients[1] - quotients[0])
        changes.append((quotients[1] - quotients[0]).abs())
    return _Slopes(low=torch.minimum(*sides), high=torch.maximum(*sides), unsteady=torch.maximum(*changes))
