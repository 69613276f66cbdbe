"""Every entry is multiplied, or divided, by what a tensor holds at its place: a factor that varies is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.laid import Laid, differences, laid
from gradverify.diagnosis.block.ratios import SAME, Ratios, ratios
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.naming.constants import recognise
from gradverify.diagnosis.naming.forms import FORMS, OF_DIFFERENCES, Form, bare, written
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import everywhere

MISSING_FACTOR = "missing-factor"
_COINCIDENCE = 1e-9  # chance of as good an agreement above which nothing is said
_LEAST = 3  # numbers that a factor has to take: two might be those of two regions
_TENSORS = 5  # of which quotients of two are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiple:
    """What every entry may be multiplied by."""

    factor: Tensor  # broadcasts to (m, n)
    times: str  # "{} / y": what the factor makes of the words that are put in
    reading: str
    turned: bool = False  # its negative is tried too, and reads better


def missing_factor(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The claimed entries are the numeric ones times, or over, an elementary function of a tensor that is seen."""
    return _first(evidence, seen, _of_one)


def mistaken_factor(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The claimed entries are the numeric ones times the quotient of two tensors, one of which stands for the other."""
    return _first(evidence, seen, _of_two)


def _first(
    evidence: Evidence, seen: Seen, multiples: Callable[[Evidence, Seen], Iterator[Multiple]]
) -> Diagnosis | None:
    sample = ratios(seen)
    if not _tells(sample, sample.values):
        return None
    for multiple in multiples(evidence, seen):
        constant = _constant(sample, multiple.factor.expand_as(seen.numeric)[sample.rows, sample.columns])
        if constant is not None:
            found = _explained(seen, multiple, constant)
            if found is not None and (constant[0] > 0 or not multiple.turned):
                return found
    return None


def _constant(sample: Ratios, factor: Tensor) -> tuple[float, str] | None:
    """Return the known number that all ratios are of the factors, and its name; None where there is none."""
    if not bool(torch.isfinite(factor).all()) or not bool((factor != 0).all()) or not _tells(sample, factor):
        return None
    quotient = sample.values / factor
    middle = float(quotient.median())
    if middle == 0 or bool(((quotient - middle).abs() > 2 * sample.tolerance * abs(middle)).any()):
        return None
    accuracy = float(sample.tolerance.median())
    sign = "-" if middle < 0 else ""
    if abs(abs(middle) - 1.0) <= accuracy:
        return math.copysign(1.0, middle), sign
    known = recognise(middle, accuracy, ())
    return None if known is None else (math.copysign(known.value, middle), f"{sign}{known.text} × ")


def _tells(sample: Ratios, factor: Tensor) -> bool:
    """Tell whether so many different numbers would not agree by chance."""
    if not len(factor):
        return False
    ordered = factor.sort().values
    tolerance = float(sample.tolerance.median())
    apart = ordered.diff() > 10 * tolerance * torch.maximum(ordered[1:].abs(), ordered[:-1].abs())
    count = 1 + int(apart.sum())
    return count >= _LEAST and (count - 1) * math.log(tolerance) <= math.log(_COINCIDENCE)


def _explained(seen: Seen, multiple: Multiple, constant: tuple[float, str]) -> Diagnosis | None:
    factor = (constant[0] * multiple.factor).expand_as(seen.numeric)
    lost = ~torch.isfinite(factor)
    if bool((lost & ~seen.zero).any()):
        return None
    predicted = torch.where(lost, seen.claimed, seen.numeric * factor)
    share = share_of(seen, predicted, float(factor[~lost].abs().max()))
    if share is None:
        return None
    text = f"analytic = {constant[1]}{multiple.times.format('numeric')}{everywhere(share)}"
    return Diagnosis(cause=MISSING_FACTOR, explanation=f"{text}{multiple.reading}", share=share)


def _of_one(evidence: Evidence, seen: Seen) -> Iterator[Multiple]:
    """Yield forms of each tensor, and of the differences of two."""
    tensors, doubtful = _tensors(evidence, seen), _is_doubtful(evidence, seen)
    for form in FORMS:
        for each in tensors:
            yield from _either_way(form, each, _at(evidence, each, doubtful))
    for each in differences(tensors):
        for form in OF_DIFFERENCES:
            for multiple in _either_way(form, each, _at(evidence, each, doubtful)):
                yield replace(multiple, turned=True)


def _of_two(evidence: Evidence, seen: Seen) -> Iterator[Multiple]:
    """Yield the quotients of two tensors."""
    tensors, doubtful = _tensors(evidence, seen), _is_doubtful(evidence, seen)
    for axis in (Axis.INPUT, Axis.OUTPUT):
        found = [each for each in tensors if each.axis is axis][:_TENSORS]
        for first, second in permutations(found, 2):
            others = [each for each in found if each is not first and each is not second]
            quotient = f"{first.name} / {second.name}"
            reading = f": a factor of {quotient} too many"
            if _stands(seen, first, others):
                reading = f", as where {first.name} stands for {second.name}{_at(evidence, second, doubtful)}"
            yield Multiple(factor=first.spread / second.spread, times=f"{{}} × {quotient}", reading=reading)


def _stands(seen: Seen, first: Laid, others: Sequence[Laid]) -> bool:
    """Tell whether the claims are this tensor times a number, and perhaps another tensor.

    What is left of them may as well be a function of the first, and then there is no telling what it stands for.
    """
    whole = seen.claimed / first.spread
    return any(_are_alike(left[seen.looks]) for left in (whole, *(whole / other.spread for other in others)))


def _are_alike(values: Tensor) -> bool:
    middle = values.median()
    return bool(((values - middle).abs() <= SAME * middle.abs()).all())


def _tensors(evidence: Evidence, seen: Seen) -> list[Laid]:
    """Return what may be a factor of an entry, by its input or by its output."""
    axes = (Axis.INPUT,) if is_elementwise(evidence, seen) else (Axis.INPUT, Axis.OUTPUT)
    return [each for axis in axes for each in laid(evidence, axis)]


def _is_doubtful(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether a place may be that of the input or of the output."""
    return not is_elementwise(evidence, seen) and evidence.of.shape == evidence.wrt.shape


def _either_way(form: Form, each: Laid, at: str) -> Iterator[Multiple]:
    """Yield a factor that is missing, and one that is too many."""
    name, factor = written(form, each.name), form.function(each.spread)
    what = f"{bare(name)}{at}"
    yield Multiple(factor=1 / factor, times=f"{{}} / {name}", reading=f": a factor of {what} is missing")
    yield Multiple(factor=factor, times=f"{name} × {{}}", reading=f": a factor of {what} too many")


def _at(evidence: Evidence, each: Laid, doubtful: bool) -> str:
    """Return where a factor is taken from, "" where there is no other place."""
    block = evidence.wrt if each.axis is Axis.INPUT else evidence.of
    if each.where:
        return f"{each.where} of {block.name}"
    return f" at the same place of {block.name}" if doubtful and each.name != block.name else ""
