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
from torch.utils._pytree import tree_leaves

# Operations that round to whole numbers or count: their results are exact by definition.
_WHOLE = {"ceil", "floor", "round", "trunc", "sign", "sgn", "heaviside", "floor_divide", "histc"}
_LOOKED_AT = 64  # entries of a result that are searched in all that an operation gets
WIDE = (torch.float64, torch.complex128)


def has_numbers(value: Tensor) -> bool:
    """True if this is a tensor in float64 with memory; the gradient of sgn is zeros without."""
    return value.dtype in WIDE and value.layout is torch.strided and not value._is_zerotensor()


def gives_whole_numbers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """True if the results of an operation are whole numbers by definition."""
    name, given = func.overloadpacket.__name__, tree_leaves((args, kwargs))
    if any(isinstance(value, Tensor) and value.is_complex() for value in given):
        return False  # the sign of a complex number is rounded
    return name in _WHOLE or (name == "div" and bool((kwargs or {}).get("rounding_mode")))


def chosen(value: Tensor, given: Iterable[Any]) -> Tensor:
    """Mask of entries, of the shape of `value`, that are among the numbers `given`, up to their signs.

    `given` holds the arguments of the operation that returned `value`. Entries are compared with those at the same
    place first, and a few of the others with all: an operation that chose these chose all of them. So did one of
    infinite order, as a distance that is the largest of several differences. Zeros count, and numbers that are not
    finite.
    """
    scalars = [abs(each) for each in given if isinstance(each, int | float) and not isinstance(each, bool)]
    if math.inf in scalars:
        return torch.ones(value.shape, dtype=torch.bool, device=value.device)
    parts = _parts(value)
    found = (parts == 0) | ~parts.isfinite()
    others = [_parts(each) for each in given if isinstance(each, Tensor) and has_numbers(each) and each.numel()]
    for other in others:
        if other.shape == parts.shape:
            found |= other.to(parts.device) == parts
    others.append(parts.new_tensor(scalars))
    left = parts[~found]
    if left.numel():
        places = torch.linspace(0, left.numel() - 1, min(_LOOKED_AT, left.numel()), device=left.device).long()
        if _are_among(left[places], others):
            return torch.ones(value.shape, dtype=torch.bool, device=value.device)
    return found.all(dim=-1)


def _parts(value: Tensor) -> Tensor:
    """Return magnitudes of the real and imaginary parts, (*shape, 1) or (*shape, 2)."""
    plain = value.detach().resolve_conj().resolve_neg()
    return (torch.view_as_real(plain) if plain.is_complex() else plain.unsqueeze(-1)).abs()


def _are_among(values: Tensor, others: Sequence[Tensor]) -> bool:
    """True if each of a few values is an entry of some of the other tensors."""
    if not any(bool((other == values[0].to(other.device)).any()) for other in others):  # most operations end here
        return False
    hits = [other[torch.isin(other, values.to(other.device))].to(values.device) for other in others]
    return bool(torch.isin(values, torch.cat(hits)).all())


def is_held(value: Tensor, eps: float) -> Tensor:
    """Mask of entries, of the shape of `value`, that are numbers of the precision in which `eps` follows 1."""
    if value.is_complex():
        return is_held(value.real, eps) & is_held(value.imag, eps)
    mantissa, _ = torch.frexp(value)  # from 1/2 to 1
    digits = mantissa * (2 / eps)
    return digits == digits.round()
