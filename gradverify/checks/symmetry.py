"""GV206: a backward whose own derivative by the inputs is not symmetric, and is thus not the gradient of a function."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.backward.vjps import flat_vjp
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler
from gradverify.core.jacobians import Investigation
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.magnitudes import weighted_sums
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_DIRECTIONS = 3
_ROUNDING, _UNITS = 1e-6, 1e3  # relative error of a sum of products; the same in eps of the inputs
_CANCELLED = 2048.0  # such units, relative to terms that may have cancelled


def asymmetric(first: Repeatable, second: Investigation, seed: int) -> Iterator[Finding]:
    """Yield a remark on a vjp that is, for its fixed cotangents, not the gradient of a function of the inputs.

    Compares p·(H q) with q·(H p) for three random directions. H is the derivative of the vjp, which `second` has
    compared with differences and accepted. Yields nothing if user code raises.
    """
    directions = _directions(second.measured, seed)
    try:
        along = _products(second, directions)
    except EvaluationError:
        return
    size, products = directions.abs(), weighted_sums(directions, along.value.T)
    bars, terms = weighted_sums(size, along.bar.T), weighted_sums(size, along.value.abs().T)
    relative = max(_ROUNDING, _UNITS * second.sampled.eps)
    allowed = BAR_FACTOR * (bars + bars.T) + relative * (terms + terms.T) + _rounding(first.sampled, second.measured)
    excess = ((products - products.T).abs() / allowed).nan_to_num(0.0).tolist()
    p, q = max(combinations(range(_DIRECTIONS), 2), key=lambda pair: excess[pair[0]][pair[1]])
    if excess[p][q] > 1.0:
        text = (
            "backward is the gradient of no function: for fixed cotangents the derivative H of a gradient by its inputs"
            f" is symmetric, but along two random directions p·(H q) is {float(products[p, q]):.6g} and q·(H p)"
            f" {float(products[q, p]):.6g}"
        )
        yield Finding(code="GV206", verdict=Verdict.PASS, message=text)


def _directions(second: MeasuredProblem, seed: int) -> Tensor:
    """Return random directions, (k, n), in which every input changes by the same part of its size."""
    size = second.sampled.value.numel()  # the gradient has the coordinates of the inputs, cotangents come after them
    return random_magnitudes_from(second.lengths.step[:size].repeat(_DIRECTIONS), seed + 6).view(_DIRECTIONS, size)


def _rounding(first: Sampler, second: MeasuredProblem) -> float:
    """Return the rounding error left by terms that cancel, as large as the differentiated value or its change."""
    size = second.sampled.value.numel()
    cotangents = second.sampled.point[size:]
    largest = first.size.max() if first.size.numel() else 0.0
    value = cotangents.abs().sum() * largest
    change = (second.sampled.value.abs() * second.lengths.step[:size]).sum()
    return _CANCELLED * second.sampled.eps * float(value + change)


def _products(second: Investigation, directions: Tensor) -> Estimate:
    """Return H·direction for each direction, (k, n): from the measured entries or, if they are not kept, by vjps."""
    size = directions.shape[1]
    kept = second.comparison.judged
    if kept is None:
        value = torch.stack([flat_vjp(second.backward, direction)[:size] for direction in directions])
        return Estimate(value=value, bar=torch.zeros_like(value))
    found = directions.new_zeros(2, len(directions), len(second.sampled.point))
    columns, known = kept.column_of.clamp(min=0).reshape(-1), kept.column_of >= 0
    for place, (entries, by) in enumerate(((kept.judged.numeric, directions), (kept.judged.bar, directions.abs()))):
        products = torch.where(known, entries * by.unsqueeze(1), 0.0)
        found[place].index_add_(1, columns, products.flatten(1))
    return Estimate(value=found[0, :, :size], bar=found[1, :, :size])
