"""Verdicts put in the place of others, or below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from gradverify.core.judging.compare import Judged

_FIELDS = tuple(field.name for field in fields(Judged))


def replaced(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those at `rows` and `outputs`, as far as they are in `where`, put in their place."""
    copy = copy_of(judged)
    put(copy, where, rows, outputs, found)
    return copy


def with_outputs(judged: Judged, outputs: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those on some outputs (k,), of all moves, put in their place."""
    every = torch.ones_like(judged.kinked)
    return replaced(judged, every, torch.arange(len(every), device=outputs.device), outputs, found)


def copy_of(judged: Judged) -> Judged:
    """Return verdicts that may be written over."""
    return Judged(**{name: getattr(judged, name).clone() for name in _FIELDS})


def stacked(rows: Sequence[Judged]) -> Judged:
    """Return the verdicts on the entries of several moves, (C, m)."""
    return Judged(**{name: torch.cat([getattr(each, name) for each in rows]) for name in _FIELDS})


def of_rows(judged: Judged, rows: Tensor | slice) -> Judged:
    """Return the verdicts on the entries of some of the moves."""
    return Judged(**{name: getattr(judged, name)[rows] for name in _FIELDS})


def put(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> None:
    """Put what was found at `rows` and `outputs`, as far as they are in `where`, into its place."""
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    mine = where[place]
    for name in _FIELDS:
        value = getattr(judged, name)
        value[place] = torch.where(mine, getattr(found, name), value[place])


def span(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns in which some flag (C, m) is set."""
    return flags.any(dim=1).nonzero().squeeze(1), flags.any(dim=0).nonzero().squeeze(1)
