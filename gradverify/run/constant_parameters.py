"""Draw the parameters that a module starts with at one value everywhere.

At weights of ones and biases of zeros a gradient that leaves them out, or mixes up their entries, is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gradverify.case import TensorInput, Uniform
from gradverify.core.model.coordinates import is_special
from gradverify.sampling.draw import draw

_NAMED = 3  # parameters of one value that are named, at most
Number = float | complex


def drawn_around(parameters: Mapping[str, Tensor], *, key: str, seed: int) -> tuple[dict[str, Tensor], str]:
    """Return the parameters with others in place of those that hold one value, and a note that names these, or "".

    Those that do not require grad stay. Random values depend only on `key`, `seed` and the name of the parameter.
    """
    constants = {name: constant for name, value in parameters.items() if (constant := _constant(value)) is not None}
    drawn = {name: _around(constant, parameters[name], name, key, seed) for name, constant in constants.items()}
    groups: dict[str, list[str]] = {}
    for name, constant in constants.items():
        groups.setdefault(f"{constant:g}", []).append(name)
    said = [f"{_named(names)} around {constant}" for constant, names in groups.items()]
    note = f"parameters that held one value were drawn around it: {', '.join(said)}" if said else ""
    return {**parameters, **drawn}, note


def _constant(value: Tensor) -> Number | None:
    """Return the finite number that every entry of a differentiated tensor is, None if there is none."""
    if not value.requires_grad or not value.numel() or value.is_meta or is_special(value):
        return None
    if value.layout is not torch.strided:
        return None
    values = value.detach().reshape(-1)
    is_constant = bool(((values == values[0]) & values.isfinite()).all())
    return values[0].item() if is_constant else None


def _around(constant: Number, like: Tensor, name: str, key: str, seed: int) -> Tensor:
    """Return a tensor like one that holds a constant, with numbers around the constant."""
    given = TensorInput(origin=Uniform.around(1.0 if constant else 0.0), shape=tuple(like.shape))
    dtype = "complex128" if like.is_complex() else "float64"
    values = draw(given, name=f"parameter {name}", key=key, seed=seed, dtype=dtype, device="cpu").detach()
    drawn = like.detach().clone()  # its dtype, device and memory layout
    drawn.copy_(values * constant if constant else values)
    return drawn.requires_grad_()


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
