"""An input of a large block that is given the gradient of one slice of the outputs, instead of their sum."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis
from gradverify.core.whole.patterns import agrees, of_outputs, rest
from gradverify.core.whole.sums import Asked
from gradverify.diagnosis.causes.broadcast import ALMOST_ALL, as_one_slice
from gradverify.diagnosis.sums.look import Look


def missing_broadcast_sum(look: Look) -> Diagnosis | None:
    """The claimed Jacobian keeps one slice of the numeric one, the first or the last, and is zero in the others."""
    asked = look.asked
    shape = asked.sums.of.shape
    for dimension, size in enumerate(shape):
        if size == 1 or not _reaches(look, dimension):
            continue
        for kept in (0, size - 1):
            index = _index(asked, dimension)
            if all((index[row.place] == kept) or not bool(row.claimed.any()) for row in look.rows):
                others = of_outputs(asked, index != kept)
                if not bool((others.claimed != 0).any()) and agrees(asked, rest(asked, others)):
                    return as_one_slice(asked.sums, dimension, kept, 1.0)
    return None


def _reaches(look: Look, dimension: int) -> bool:
    """Tell whether almost all inputs that were looked at go into several slices of the output."""
    index, at = _index(look.asked, dimension), look.asked.sums.of.coordinates
    used = [index[column.numeric.value[at].abs() > column.numeric.bar[at]] for column in look.columns]
    live = [slices for slices in used if len(slices)]
    return sum(int(slices.min()) < int(slices.max()) for slices in live) >= ALMOST_ALL * len(live) > 0


def _index(asked: Asked, dimension: int) -> Tensor:
    """Return the index along a dimension of every entry of the output."""
    shape = asked.sums.of.shape
    places = torch.arange(total(shape), device=asked.sums.device)
    return places // total(shape[dimension + 1 :]) % shape[dimension]
