"""Where real tensors lie in a flat vector of coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One real tensor among the inputs or outputs: its first coordinate and its shape, complex parts last."""

    start: int
    shape: tuple[int, ...]

    @property
    def place(self) -> slice:
        """The part's coordinates."""
        return slice(self.start, self.start + torch.Size(self.shape).numel())


def parts(shapes: Sequence[Sequence[int]], complexes: Sequence[bool]) -> tuple[Part, ...]:
    """Return where tensors of these shapes lie in a flat vector of their real coordinates."""
    found, start = [], 0
    for shape, is_complex in zip(shapes, complexes, strict=True):
        real = (*shape, 2) if is_complex else tuple(shape)
        found.append(Part(start=start, shape=real))
        start += torch.Size(real).numel()
    return tuple(found)
