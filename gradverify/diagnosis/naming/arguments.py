"""Single numbers that a function is given or returns: what a constant factor may turn out to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Site
from gradverify.diagnosis.naming.variables import coordinates

_PLAIN = (0.0, 0.5, 1.0, 2.0)  # sizes that say nothing of where a number is from
_POWERS = (1, -1, 2, -2)
_LEAST, _MOST = 1e-6, 1e-4  # relative accuracy of a factor: at best, and the worst that tells numbers apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A number with a name, and a power of it."""

    name: str  # y
    value: float
    power: int  # that the factor is of it, its sign aside
    negative: bool  # the factor is minus that power

    @property
    def itself(self) -> str:
        """The factor in words: y, y², -1/y."""
        words = self.name if abs(self.power) == 1 else f"{self.name}²"
        return ("-" if self.negative else "") + (words if self.power > 0 else f"1/{words}")

    @property
    def text(self) -> str:
        """What is missing, or too many: "1/y" of 0.7 where the factor is 0.7, and where it is its reciprocal."""
        power = -self.power if abs(self.value) ** self.power < 1 else self.power
        words = self.name if abs(power) == 1 else f"{self.name}²"
        return words if power > 0 else f"1/{words}"


def argument(site: Site, factor: float, accuracy: float) -> Argument | None:
    """Return the number that a factor, its sign aside, is a power of; None where it is that of none, or of several."""
    allowed = max(accuracy, _LEAST)
    if allowed > _MOST:
        return None
    found = [
        Argument(name=name, value=value, power=power, negative=value**power * factor < 0)
        for name, value in dict(_numbers(site)).items()
        for power in _POWERS
        if abs(value) not in _PLAIN and abs(abs(value**power) - abs(factor)) <= allowed * abs(factor)
    ]
    return found[0] if len(found) == 1 else None


def _numbers(site: Site) -> Iterator[tuple[str, float]]:
    for entry in site.backward.problem.bound:
        if not isinstance(entry.value, Tensor):
            yield entry.name, entry.value
        elif entry.value.numel() == 1 and not entry.value.is_complex():
            yield entry.name, float(entry.value)
    point, value = coordinates(site)
    for blocks, numbers in ((site.inputs, point), (site.outputs, value)):
        for block in blocks:
            if total(block.shape) == 1:
                yield block.name, float(numbers[block.coordinates])
