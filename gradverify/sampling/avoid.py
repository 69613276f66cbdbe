"""Values kept away from points where a function is not smooth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from gradverify.sampling.distributions import Support

_SHARE = 1 / 50  # of the distribution's width: wider than a finite-difference step, narrow beside a stratum


def keep_away(values: Tensor, points: Iterable[float], support: Support) -> Tensor:
    """Return `values` with none closer to a point than its margin; the map is monotone on either side of a point.

    A value keeps its side of the point, unless the distribution ends there. Of complex values the real part moves.
    """
    if values.is_complex():
        return torch.complex(keep_away(values.real, points, support), values.imag)
    for point, margin in _margins(sorted(set(points)), support.width):
        offset = values - point
        side = torch.where(offset < 0, -1.0, 1.0).to(offset.dtype)
        if point - margin < support.low:
            side = torch.ones_like(side)
        elif point + margin > support.high:
            side = -torch.ones_like(side)
        # [0, room) is squeezed into [m, room): what was apart stays apart, and nothing piles up at the margin.
        ends = torch.where(side > 0, support.high - point, point - support.low)
        room = ends.clamp(min=margin, max=2 * margin)
        moved = point + side * (margin + offset.abs().clamp(max=2 * margin) * (room - margin) / room)
        values = torch.where(offset.abs() < room, moved, values)
    return values


def _margins(points: list[float], width: float) -> Iterator[tuple[float, float]]:
    for number, point in enumerate(points):
        neighbours = points[max(number - 1, 0) : number] + points[number + 1 : number + 2]
        gap = min((abs(point - other) for other in neighbours), default=math.inf)
        yield point, min(width * _SHARE, gap / 4)
