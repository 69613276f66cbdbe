"""Values that were seen as the keys of a spec that draw such values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradverify.author.recording.notes import SeenValues
from gradverify.case import Uniform

_LIGHT_TAILS = 2.3  # below it values look uniform: 1.8 for a uniform distribution, 3 for a normal one
_MANY = 50  # values that tell one from the other
_SCALED = ("positive_definite", "simplex")  # constraints that keep no more of what is drawn
_NEAR_STANDARD = 0.15  # distance of mean and deviation from those of a standard normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """How the values of an input are drawn."""

    keys: dict[str, Any]  # of its mapping in the spec, without `shape`
    remark: str = ""  # what is different from the values that were seen, as the predicate of a sentence
    special: tuple[int, ...] = ()  # whole numbers that were seen and are not drawn, as -100 of a label to ignore


def real_values(seen: Sequence[SeenValues], *, differentiated: bool) -> Drawn:
    """Return how real or complex values are drawn: as seen, but around a constant that is differentiated."""
    measured = [values for values in seen if values.low is not None and values.high is not None]
    if not measured:
        return Drawn(keys={})
    low, high = min(values.low or 0.0 for values in measured), max(values.high or 0.0 for values in measured)
    remark = "" if all(values.is_finite for values in seen) else "held NaN or infinity in some call; drawn finite"
    if low == high:
        return _around(low) if differentiated else Drawn(keys={"linspace": [_short(low)] * 2}, remark=remark)
    if not differentiated and all(values.is_whole for values in measured):
        return Drawn(keys={"integers": [int(low), int(high) + 1], "dtype": "case"}, remark=remark)
    return Drawn(keys=_with_structure(measured, _distribution(measured, low, high)), remark=remark)


def whole_values(seen: Sequence[SeenValues], *, below: int | None = None) -> Drawn:
    """Return how whole numbers are drawn, below a number if one is given."""
    measured = [values for values in seen if values.low is not None and values.high is not None]
    if not measured:
        return Drawn(keys={"integers": [0, max(1, below or 1)]})
    if all(values.is_permutation for values in measured):
        return Drawn(keys={"permutation": True})
    low, high = (int(end) for end in (min(v.low or 0 for v in measured), max(v.high or 0 for v in measured)))
    remark, special = "", tuple[int, ...]()
    if low < 0 <= high:
        least = min(values.least if values.least is not None else high for values in measured)
        remark = f"had values below zero down to {low}; drawn from {least} on, and {low} is left to explore"
        low, special = least, (low,)
    if below is not None and below <= high:  # places in a dimension, all of which exist
        low = 0
    end = high + 1 if below is None else min(high + 1, below)
    if all(values.is_sorted for values in measured) and low < high:
        remark = remark or "was sorted in all calls; drawn in any order"
    return Drawn(keys={"integers": [low, end]}, remark=remark, special=special)


def same_entries(seen: Sequence[SeenValues]) -> tuple[Any, ...] | None:
    """Return whole numbers that say something of sizes and were the same in all calls; None if there are none.

    They have equal rows, as the lengths of sequences that all are as long, or are sorted, as offsets. One number
    everywhere is drawn as it was.
    """
    entries = seen[0].entries if seen else None
    if entries is None or any(each.entries != entries or each.is_permutation for each in seen):
        return None
    if seen[0].low == seen[0].high:
        return None
    is_row = not isinstance(entries[0], tuple)
    are_alike = not is_row and len(entries) > 1 and len(set(entries)) == 1
    return entries if are_alike or (is_row and seen[0].is_sorted) else None


def as_seen(entries: tuple[Any, ...]) -> Drawn:
    """Return whole numbers as they were in all calls."""
    return Drawn(keys={"values": _listed(entries)}, remark="was the same in all calls; written as it was")


def truth_values(seen: Sequence[SeenValues]) -> Drawn:
    """Return how truth values are drawn."""
    shares = [values.mean for values in seen if values.mean is not None]
    return Drawn(keys={"bernoulli": _rounded(sum(shares) / len(shares)) if shares else 0.5})


def highest(seen: Sequence[SeenValues]) -> int | None:
    """Return the largest whole number that was seen, None if none was."""
    return max((int(values.high) for values in seen if values.high is not None), default=None)


def _listed(entries: tuple[Any, ...]) -> list[Any]:
    return [_listed(each) if isinstance(each, tuple) else each for each in entries]


def _around(constant: float) -> Drawn:
    around = Uniform.around(constant)
    return Drawn(
        keys={"uniform": [_short(end) for end in (around.low, around.high)]},
        remark=f"was {constant:g} everywhere in all calls; drawn around it",
    )


def _distribution(measured: Sequence[SeenValues], low: float, high: float) -> dict[str, Any]:
    mean = sum(values.mean or 0.0 for values in measured) / len(measured)
    std = sum(values.std or 0.0 for values in measured) / len(measured)
    tails = sum(values.tails for values in measured) / len(measured)
    if len(measured) == 1 and measured[0].is_sorted:
        return {"linspace": _inside(low, high)}
    leaves_range = (low >= 0 and mean < 3 * std) or (high <= 0 and -mean < 3 * std)
    are_many = sum(values.count for values in measured) >= _MANY
    if std == 0 or leaves_range or (are_many and 0 < tails < _LIGHT_TAILS):
        return {"uniform": _inside(low, high)}
    unsure = 2 / math.sqrt(max(1, sum(values.count for values in measured)))  # two standard errors of the mean
    if abs(mean) < _NEAR_STANDARD + unsure and abs(std - 1) < _NEAR_STANDARD + unsure:
        return {}
    return {"normal": [0 if abs(mean) < std / 10 else _short(_rounded(mean)), _short(_rounded(std))]}


def _with_structure(measured: Sequence[SeenValues], keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys with the constraint that all values satisfied."""
    found = {values.structure for values in measured}
    structure = found.pop() if len(found) == 1 else ""
    if not structure:
        return keys
    if structure in _SCALED:  # only the scale of what is drawn counts
        squares = [(values.mean or 0.0) ** 2 + (values.std or 0.0) ** 2 for values in measured]
        scale = _short(_rounded(math.sqrt(sum(squares) / len(squares))))
        keys = {} if abs(scale - 1) < _NEAR_STANDARD or structure == "simplex" else {"normal": [0, scale]}
    return {**keys, "constraint": structure}


def _inside(low: float, high: float) -> list[float]:
    """Return a range with few digits that does not leave this one."""
    digits = 2 - math.floor(math.log10(max(abs(low), abs(high))))
    scale = 10.0**digits if abs(digits) < 300 else 1.0
    shorter = [math.ceil(low * scale) / scale, math.floor(high * scale) / scale]
    return [_short(end) for end in (shorter if shorter[0] < shorter[1] else (low, high))]


def _short(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _rounded(number: float) -> float:
    return float(f"{number:.2g}")
