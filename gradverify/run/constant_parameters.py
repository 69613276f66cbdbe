"""Draw the parameters that a module starts with at one value everywhere, or at zeros and one other value.

At weights of ones and biases of zeros a gradient that leaves them out, or mixes up their entries, is right. At an
identity matrix so is one that transposes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from gradverify.case import TensorInput, Uniform
from gradverify.checks.default_device import cpu_by_default
from gradverify.core.model.coordinates import is_special
from gradverify.core.model.generators import restored_generators
from gradverify.core.model.problem import bind, call, fresh, gpus_of
from gradverify.errors import EvaluationError
from gradverify.run.call import Call
from gradverify.run.module import as_function
from gradverify.sampling.draw import draw

_NAMED = 3  # parameters of one value that are named, at most
_DRAWN = "parameters that held one value were drawn around it"
_DRAWN_BESIDE_ZEROS = "parameters that held zeros and one other value were drawn around them"
_KEPT_BESIDE_ZEROS = (
    "parameters that hold zeros and one other value are judged as they are, since forward does not accept others"
)
_KEPT = "parameters that hold one value everywhere are judged as they are, since forward does not accept others"
Number = float | complex
Forward = Callable[[Mapping[str, Tensor]], Sequence[Tensor]]


def drawn_around(
    parameters: Mapping[str, Tensor], forward: Forward, *, key: str, seed: int
) -> tuple[dict[str, Tensor], str]:
    """Return the parameters with others in place of those that hold one value, and a note that names these, or "".

    Those that hold zeros and one other value are replaced too. Those that do not require grad stay, and those that
    `forward` does not accept otherwise: it raises, or its outputs are finite only at the given ones. Random values
    depend only on `key`, `seed` and the name of the parameter.
    """
    constants = {name: constant for name, value in parameters.items() if (constant := _constant(value)) is not None}
    beside_zeros = {name for name, constant in constants.items() if constant and bool((parameters[name] == 0).any())}
    others = {name: _around(constant, parameters[name], name, key, seed) for name, constant in constants.items()}
    drawn = _accepted(parameters, {name: other for name, other in others.items() if _is_finite(other)}, forward)
    told = (
        (_DRAWN, "around ", drawn.keys() - beside_zeros),
        (_DRAWN_BESIDE_ZEROS, "around 0 and ", drawn.keys() & beside_zeros),
        (_KEPT, "= ", constants.keys() - drawn.keys() - beside_zeros),
        (_KEPT_BESIDE_ZEROS, "= 0 and ", beside_zeros - drawn.keys()),
    )
    notes = [f"{says}: {_listed(constants, names, before)}" for says, before, names in told if names]
    return {**parameters, **drawn}, "; ".join(notes)


def forward_of(module: torch.nn.Module, given: Call, **how: Any) -> Forward:
    """Return a module's forward as a function of its parameters, which returns its floating and complex outputs.

    It leaves the arguments and all generators of random numbers as they are. `how` is passed to `bind`. Raises
    EvaluationError for what the module raises.
    """

    def forward(parameters: Mapping[str, Tensor]) -> Sequence[Tensor]:
        function, whole = as_function(module, given, parameters)
        problem = bind(function, whole.args, names=whole.names, kwargs=whole.kwargs, **how)
        with torch.no_grad(), restored_generators(gpus_of(problem)), cpu_by_default(problem) as problem:
            outputs = call(problem, [fresh(primal.tensor) for primal in problem.primals])
        return [output.tensor for output in outputs]

    return forward


def _accepted(parameters: Mapping[str, Tensor], drawn: Mapping[str, Tensor], forward: Forward) -> dict[str, Tensor]:
    """Return those of the drawn parameters that forward accepts together; all of them if it raises at the given."""
    found = _outputs(forward, {**parameters, **drawn}) if drawn else ()
    if found is not None and all(map(_is_finite, found)):
        return dict(drawn)
    given = _outputs(forward, parameters)
    if given is None or _are_as_finite(found, given):
        return dict(drawn)
    accepted: dict[str, Tensor] = {}
    left = [list(drawn)]  # groups to try, the last one first; all together were not accepted
    while left:
        group = left.pop()
        tried = accepted | {name: drawn[name] for name in group}
        if len(group) < len(drawn) and _are_as_finite(_outputs(forward, {**parameters, **tried}), given):
            accepted = tried
        elif len(group) > 1:
            half = len(group) // 2
            left += [group[half:], group[:half]]
    return accepted


def _outputs(forward: Forward, parameters: Mapping[str, Tensor]) -> Sequence[Tensor] | None:
    """Return what forward returns, None if it raises."""
    try:
        return forward(parameters)
    except EvaluationError:
        return None


def _are_as_finite(found: Sequence[Tensor] | None, given: Sequence[Tensor]) -> bool:
    """True if outputs are finite wherever the given ones are."""
    if found is None or all(map(_is_finite, found)):
        return found is not None
    if [each.shape for each in found] != [each.shape for each in given]:
        return False
    return all(
        _is_finite(one) or bool((one.isfinite() | ~other.isfinite()).all())
        for one, other in zip(found, given, strict=True)
    )


def _is_finite(values: Tensor) -> bool:
    """True if all values are finite, or torch cannot tell, as of a sparse tensor."""
    try:
        return bool(values.isfinite().all())
    except RuntimeError:
        return True


def _constant(value: Tensor) -> Number | None:
    """Return the finite number that all entries of a differentiated tensor hold, apart from zeros; None if none is.

    It is 0 if all of them are zero.
    """
    if not value.requires_grad or not value.numel() or value.is_meta or is_special(value):
        return None
    if value.layout is not torch.strided or value.dtype.itemsize == 1:  # float8 has hardly any numbers nearby
        return None
    values = value.detach().reshape(-1)
    constant = values[values != 0][:1] if bool((values != 0).any()) else values[:1]
    is_constant = bool((((values == constant) | (values == 0)) & values.isfinite()).all())
    return constant.item() if is_constant else None


def _around(constant: Number, like: Tensor, name: str, key: str, seed: int) -> Tensor:
    """Return a tensor like one of zeros and a constant, with numbers around both."""
    dtype = "complex128" if like.is_complex() else "float64"

    def around(number: float) -> Tensor:
        given = TensorInput(origin=Uniform.around(number), shape=tuple(like.shape))
        with torch.device("cpu"):  # whatever the default device is
            return draw(given, name=f"parameter {name}", key=key, seed=seed, dtype=dtype, device="cpu").detach()

    zero, drawn = (like == 0).cpu(), like.detach().clone()  # its dtype, device and memory layout
    values = around(1.0) * constant if constant else around(0.0)
    if constant and bool(zero.any()):
        values = torch.where(zero, around(0.0), values)
    drawn.copy_(values)
    return drawn.requires_grad_()


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _listed(constants: Mapping[str, Number], names: Set[str], before: str) -> str:
    """Return the names with the value that each parameter held, in the order of the constants."""
    groups: dict[str, list[str]] = {}
    for name, constant in constants.items():
        if name in names:
            groups.setdefault(f"{constant:g}", []).append(name)
    return ", ".join(f"{_named(group)} {before}{constant}" for constant, group in groups.items())
