"""Keep values away from points at which a function is not smooth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from gradverify.sampling.distributions import Support

_MARGIN = 1 / 50  # share of the distribution's width: more than a finite-difference step, less than a stratum


def keep_away(values: Tensor, points: Iterable[float], support: Support) -> Tensor:
    """Return `values` moved so that each keeps a margin from every point. The map is monotone on each side of a point.

    A value stays on its side of the point, unless the distribution ends within the margin. Only the real part of
    complex values is moved.
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
        # Distances in [0, room) are mapped linearly to [margin, room): different values stay different.
        ends = torch.where(side > 0, support.high - point, point - support.low)
        room = ends.clamp(min=margin, max=2 * margin)
        moved = point + side * (margin + offset.abs().clamp(max=2 * margin) * (room - margin) / room)
        values = torch.where(offset.abs() < room, moved, values)
    return values


def _margins(points: list[float], width: float) -> Iterator[tuple[float, float]]:
    for number, point in enumerate(points):
        neighbours = points[max(number - 1, 0) : number] + points[number + 1 : number + 2]
        gap = min((abs(point - other) for other in neighbours), default=math.inf)
        yield point, min(width * _MARGIN, gap / 4)
