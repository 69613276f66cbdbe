"""Scalar arguments, inputs and outputs of a function, and the powers of them that a constant factor may equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.diagnosis.naming.variables import named_tensors
from gradverify.evidence import WrongBlock

_COMMON = (0.0, 0.5, 1.0, 2.0)  # magnitudes too common to be evidence for an argument
_POWERS = (1, -1, 2, -2)
_BEST, _WORST = 1e-6, 1e-4  # relative accuracy of a factor: never taken as better; if worse, too many numbers fit


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarPower:
    """A scalar of the function of which a factor is a power, up to the sign."""

    name: str  # y
    value: float
    power: int  # |factor| = |value|**power
    negative: bool  # factor = -value**power

    @property
    def power_text(self) -> str:
        """The factor as a power of the scalar: y, y², -1/y."""
        return f"{'-' if self.negative else ''}{self._text(self.power)}"

    @property
    def missing_text(self) -> str:
        """What is missing, or too many: the power or its reciprocal, whichever is larger; "1/y" if y = 0.7."""
        return self._text(-self.power if abs(self.value) ** self.power < 1 else self.power)

    def _text(self, power: int) -> str:
        words = self.name if abs(power) == 1 else f"{self.name}²"
        return words if power > 0 else f"1/{words}"


def scalar_power(site: WrongBlock, factor: float, accuracy: float) -> ScalarPower | None:
    """Return the scalar of which a factor is a power, up to the sign, within a relative `accuracy`.

    Returns None if no scalar fits, or several do, or the factor is not known well enough.
    """
    allowed = max(accuracy, _BEST)
    if allowed > _WORST:
        return None
    found = [
        ScalarPower(name=name, value=value, power=power, negative=_power(value, power) * factor < 0)
        for name, value in dict(_numbers(site)).items()
        for power in _POWERS
        if abs(value) not in _COMMON and abs(abs(_power(value, power)) - abs(factor)) <= allowed * abs(factor)
    ]
    return found[0] if len(found) == 1 else None


def _power(value: float, power: int) -> float:
    """Return value**power; inf where Python's own operator raises OverflowError."""
    return float(torch.tensor(value, dtype=torch.float64).pow(power))


def _numbers(site: WrongBlock) -> Iterator[tuple[str, float]]:
    """Yield the names and values of all real scalars among the arguments, inputs and outputs."""
    for entry in site.backward.problem.bound:
        if not isinstance(entry.value, Tensor):
            yield entry.name, entry.value
    for name, tensor in named_tensors(site):
        if tensor.numel() == 1:
            yield name, float(tensor)
