"""How a block is built, and which of its coordinates are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.coordinates import total
from gradverify.core.evidence import Evidence
from gradverify.diagnosis.seen import Seen
from gradverify.diagnosis.variables import Axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The coordinates along one axis, those of them that hold wrong entries, and those that could."""

    axis: Axis
    wrong: Tensor  # (k,) bool
    relevant: Tensor  # (k,) bool: with an entry other than zero


def is_elementwise(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether every output entry depends, and is claimed to depend, on the input entry at its own place alone."""
    if evidence.of.shape != evidence.wrt.shape:
        return False
    return all(_is_diagonal(entries) for entries in (seen.claimed != 0, ~seen.zero))


def group(seen: Seen, axis: Axis) -> Group:
    """Return the coordinates along an axis."""
    across = 1 - axis.value
    filled = (seen.claimed != 0) | ~seen.zero
    return Group(axis=axis, wrong=seen.wrong.any(across), relevant=filled.any(across))


def over(axis: Axis, coordinates: Tensor) -> Tensor:
    """Return the coordinates (k,) as something that broadcasts over a Jacobian along this axis."""
    return coordinates.unsqueeze(0) if axis is Axis.INPUT else coordinates.unsqueeze(1)


def on_diagonal(evidence: Evidence, values: Tensor) -> Tensor:
    """Return the (k, k) matrix, or for a single output the (1, k) row, whose own-place entries are `values` (k,)."""
    return values.unsqueeze(0) if total(evidence.of.shape) == 1 else torch.diag(values)


def _is_diagonal(entries: Tensor) -> bool:
    return int(entries.sum()) == int(entries.diagonal().sum())
