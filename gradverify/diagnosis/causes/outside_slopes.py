"""Values outside the subdifferential: at a kink, backward returns a number not between the one-sided derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.diagnosis.block.elsewhere import outputs_at
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.constants import number_text
from gradverify.diagnosis.naming.variables import input_and_output_values
from gradverify.diagnosis.naming.wording import element_name
from gradverify.evidence import Diagnosis, Evidence

OUTSIDE_SLOPES = "outside-slopes"
_STEPS = (2.0**-12, 2.0**-13)  # times the input's size: extrapolation leaves a relative error of about 1e-7
_MAX_CHANGE = 1e-3  # times the larger slope: a larger change with the step is curvature or a kink beside the point
_SAME = 1e-4  # times the larger slope: slopes that count as equal, and claims that count as between them
_MAX_INPUTS = 256  # inputs with wrong entries: with more, no diagnosis is attempted
_DIGITS = 5  # significant digits printed


def outside_slopes(seen: BlockEntries) -> Diagnosis | None:
    """Detect wrong entries that are all at a kink, with claims below or above both one-sided derivatives."""
    if seen.block.backward.missing[seen.block.wrt.tensor]:
        return None  # None is no slope
    kinked = seen.block.jacobians.maybe_kinked[seen.block.of.coordinates, seen.block.wrt.coordinates]
    columns = seen.wrong.any(0).nonzero().flatten().tolist()
    if len(columns) > _MAX_INPUTS or bool((seen.wrong & ~kinked).any()):
        return None
    worst: tuple[float, str] = (0.0, "")
    for column in columns:
        rows = seen.wrong[:, column].nonzero().flatten()
        slopes = _slopes(seen.block, column, rows)
        if slopes is None:
            return None
        low, high, change = slopes
        claimed, size = seen.claimed[rows, column], torch.maximum(low.abs(), high.abs())
        outside = torch.maximum(low - claimed, claimed - high)
        kinked = (high - low > _SAME * size) & (change <= _MAX_CHANGE * size)
        is_nearest = (claimed.clamp(low, high) - seen.numeric[rows, column]).abs() <= _SAME * size
        if not bool((kinked & is_nearest & (outside > _SAME * size)).all()):
            return None
        at = int(outside.argmax())
        if float(outside[at]) > worst[0]:
            shown = [number_text(float(f"{float(each[at]):.{_DIGITS}g}")) for each in (claimed, low, high)]
            where = f"{element_name(seen.block.of, int(rows[at]))} by {element_name(seen.block.wrt, column)}"
            worst = float(outside[at]), f"backward says {shown[0]}, the slopes are {shown[1]} and {shown[2]} ({where})"
    others = int(seen.wrong.sum()) - 1
    more = f"; {others} more wrong {'entry lies' if others == 1 else 'entries lie'} outside both slopes at a kink"
    return Diagnosis(cause=OUTSIDE_SLOPES, explanation=f"at a kink: {worst[1]}{more if others else ''}", share=1.0)


def _slopes(evidence: Evidence, column: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the lower and the higher one-sided derivative of the outputs `rows` by input `column`, (k,) each.

    The third tensor is the difference of the quotients with the two steps. None if forward fails on one side.
    """
    point, value = input_and_output_values(evidence)
    point_block, start = point[evidence.wrt.coordinates], value[evidence.of.coordinates][rows]
    size = float(point_block[column].abs()) or float(point_block.abs().max()) or 1.0
    sides, changes = [], []
    for sign in (-1.0, 1.0):
        quotients = []
        for step in _STEPS:
            offset = torch.zeros_like(point_block)
            offset[column] = sign * step * size
            outputs = outputs_at(evidence, point_block + offset)
            if outputs is None:
                return None
            quotients.append((outputs[rows] - start) / (sign * step * size))
        sides.append(2 * quotients[1] - quotients[0])
        changes.append((quotients[1] - quotients[0]).abs())
    return torch.minimum(*sides), torch.maximum(*sides), torch.maximum(*changes)
