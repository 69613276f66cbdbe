"""Results of operations that no precision rounds: numbers that an operation chose among others, and whole numbers.

Where such a result decides what is computed next, rounding it would change more than a digit: torch's gradient of a
largest entry goes to the entries that equal it, and a number that `floor` returns may become an index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# Operations that round to whole numbers or count: their results are exact by definition.
_WHOLE = {"ceil", "floor", "round", "trunc", "sign", "sgn", "heaviside", "floor_divide", "histc"}
_SUMS = {torch.ops.aten.add, torch.ops.aten.sub, torch.ops.aten.rsub}
_LOOKED_AT = 64  # entries of a result that are searched in all that an operation gets
WIDE = {torch.float64, torch.complex128}


def has_numbers(value: Tensor) -> bool:
    """True if this is a tensor in float64 with memory; the gradient of sgn is zeros without."""
    return value.dtype in WIDE and value.layout is torch.strided and not value._is_zerotensor()


def gives_whole_numbers(func: Any, given: Iterable[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """True if the results of an operation on what is `given` are whole numbers by definition."""
    name = func.overloadpacket.__name__
    if name not in _WHOLE and not (name == "div" and (kwargs or {}).get("rounding_mode")):
        return False
    return not any(isinstance(value, Tensor) and value.is_complex() for value in given)  # their sign is rounded


def chosen(func: Any, value: Tensor, given: Sequence[Any]) -> Tensor:
    """Mask of entries, of the shape of `value`, that are among the numbers `given`, up to their signs.

    `given` holds the arguments of the operation `func` that returned `value`. A sum that equals one of its terms has
    chosen it only if the other is zero; otherwise rounding has absorbed the other. Of other operations, entries are
    compared with those at the same place first and, unless these alone are what the operation sees, a few of the others
    with all: an operation that chose these chose all of them. So did one of infinite order, as a distance that is the
    largest of several differences. Zeros count, and numbers that are not finite.
    """
    if func.overloadpacket in _SUMS:
        return _has_no_term(value, given)
    scalars = [abs(each) for each in given if isinstance(each, int | float) and not isinstance(each, bool)]
    if math.inf in scalars:
        return torch.ones(value.shape, dtype=torch.bool, device=value.device)
    parts = _parts(value)
    left = (parts > 0) & (parts < math.inf)
    tensors = [each for each in given if isinstance(each, Tensor) and has_numbers(each) and each.numel()]
    others, pointwise = list(map(_parts, tensors)), torch.Tag.pointwise in func.tags
    for each, other in zip(tensors, others, strict=True):
        if each.dtype == value.dtype and (pointwise or each.shape == value.shape):
            left &= other.to(parts.device) != parts
    if pointwise:
        for scalar in scalars:
            left &= parts != scalar
    elif _are_among(parts[left], others, scalars):
        return torch.ones(value.shape, dtype=torch.bool, device=value.device)
    return ~(left.any(dim=-1) if value.is_complex() else left)


def _has_no_term(value: Tensor, given: Sequence[Any]) -> Tensor:
    """Mask of the entries of a sum or difference, of the shape of `value`, with a term that is zero."""
    none = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    for term in given[:2]:
        none |= (term == 0).to(value.device) if isinstance(term, Tensor) else term == 0
    return none


def _parts(value: Tensor) -> Tensor:
    """Return magnitudes, of the shape of `value`; of real and imaginary parts if it is complex, (*shape, 2)."""
    plain = value.detach()
    return (torch.view_as_real(plain.resolve_conj().resolve_neg()) if plain.is_complex() else plain).abs()


def _are_among(values: Tensor, others: Sequence[Tensor], scalars: Sequence[float]) -> bool:
    """True if each of a few of the values is an entry of some of the other tensors, or one of the scalars."""
    if not values.numel():
        return False
    first = float(values[0])
    if first not in scalars and not any(bool((other == first).any()) for other in others):
        return False  # most operations end here
    count = min(_LOOKED_AT, values.numel())
    few = values[torch.linspace(0, values.numel() - 1, count, device=values.device).long()]
    hits = [other[torch.isin(other, few.to(other.device))].to(few.device) for other in others]
    return bool(torch.isin(few, torch.cat([*hits, few.new_tensor(scalars)])).all())


def is_held(value: Tensor, eps: float) -> Tensor:
    """Mask of entries, of the shape of `value`, that are numbers of the precision in which `eps` follows 1."""
    if value.is_complex():
        return is_held(value.real, eps) & is_held(value.imag, eps)
    mantissa, _ = torch.frexp(value)  # from 1/2 to 1
    digits = mantissa * (2 / eps)
    return digits == digits.round()
