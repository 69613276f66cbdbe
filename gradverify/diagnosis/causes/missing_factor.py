"""Missing factor: entries are multiplied or divided by a function of a tensor at their place, or of a slice of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.structure import axes_of
from gradverify.diagnosis.naming.constants import common_value, known_constant, multiple_in_words
from gradverify.diagnosis.naming.variables import TENSORS, Axis, Variable, block_along, differences
from gradverify.diagnosis.naming.wording import diagnosed_everywhere, dimensions_text, share_text
from gradverify.diagnosis.tuning import AGREEING, EQUAL_FACTORS, EXACT, NO_ACCIDENT, VARIES
from gradverify.evidence import Diagnosis

MISSING_FACTOR = "missing-factor"
_MAX_CHANCE = 1e-9  # probability of an equally good agreement by chance above which nothing is reported
_SHARP = 1e-2  # largest relative error bar of an entry; with a larger one it agrees with too many factors
_NEAR = 1e-4  # relative tolerance of a statistic: an eps may be added to it before the division
_MAX_DIMENSIONS = 4  # dimensions of which all subsets are tried as slices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A function of a tensor by which the claims are multiplied, because it is missing in them or one too many."""

    name: str  # format string, with {0} for the tensor and {1} for the tensor in brackets if its name contains a space
    function: Callable[[Tensor], Tensor]
    is_missing: bool  # then `function` is the reciprocal of what `name` says

    def text(self, name: str) -> str:
        """Return what is missing, or too many, of the tensor with this name."""
        return self.name.format(name, f"({name})" if " " in name else name)

    def interpretation(self, name: str) -> str:
        """Return what a factor of this name means."""
        return f": a factor of {name} {'is missing' if self.is_missing else 'too many'}"


def _both_ways(name: str, function: Callable[[Tensor], Tensor]) -> tuple[_Form, _Form]:
    """Return the reciprocal (a missing factor) and the function itself (a factor too many)."""
    reciprocal = _Form(name=name, function=lambda values: 1 / function(values), is_missing=True)
    return reciprocal, _Form(name=name, function=function, is_missing=False)


# Simplest first.
_FORMS = (
    *_both_ways("{1}", torch.clone),
    *_both_ways("{1}²", torch.square),
    *_both_ways("(1 - {1})", lambda t: 1 - t),
    *_both_ways("(1 - {1}²)", lambda t: 1 - t * t),
    *_both_ways("(1 + {1})", lambda t: 1 + t),
    *_both_ways("(1 + {1}²)", lambda t: 1 + t * t),
    *_both_ways("{1} (1 - {1})", lambda t: t * (1 - t)),
    *_both_ways("√{1}", torch.sqrt),
    *_both_ways("exp({0})", torch.exp),
    *_both_ways("log({0})", torch.log),
    *_both_ways("{1}³", lambda t: t**3),
)
_OF_DIFFERENCES = tuple(form for form in _FORMS if form.name in ("{1}", "exp({0})", "(1 + {1})"))
_OF_QUOTIENTS = (_both_ways("{0}", torch.clone)[1],)
_OF_STATISTICS = (*_both_ways("{0}", torch.clone), *_both_ways("{0} squared", torch.square))

# From the members of each slice (slices, members) to a number of each (slices,).
_STATISTICS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("norm", lambda t: t.norm(dim=1)),
    ("sum", lambda t: t.sum(dim=1)),
    ("mean", lambda t: t.mean(dim=1)),
    ("root mean square", lambda t: t.square().mean(dim=1).sqrt()),
    ("standard deviation", lambda t: t.std(dim=1, correction=0)),
    ("standard deviation (by n - 1)", lambda t: t.std(dim=1)),
    ("sum of magnitudes", lambda t: t.abs().sum(dim=1)),
    ("largest entry", lambda t: t.amax(dim=1)),
    ("sum of exponentials", lambda t: t.exp().sum(dim=1)),
)


def missing_factor(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times, or over, an elementary function of a tensor or of the difference of two."""
    tensors = [tensor for axis in axes_of(seen) for tensor in seen.tensors_along(axis)]
    found = _first_match(seen, tensors, _FORMS) or _first_match(seen, differences(tensors), _OF_DIFFERENCES)
    if found is None:
        return None
    name = found.form.text(found.tensor.name)
    product = f"numeric / {name}" if found.form.is_missing else f"{name} × numeric"
    meaning = found.form.interpretation(f"{_without_brackets(name)}{_location(seen, found.tensor)}")
    return diagnosed_everywhere(MISSING_FACTOR, f"analytic = {found.constant}{product}", found.share, meaning)


def mistaken_factor(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times the quotient of two tensors, as if one were used for the other."""
    pairs = [pair for axis in axes_of(seen) for pair in permutations(seen.tensors_along(axis)[:TENSORS], 2)]
    quotients = [replace(one, values=one.values / other.values) for one, other in pairs]
    found = _first_match(seen, quotients, _OF_QUOTIENTS)
    if found is None:
        return None
    (one, other), on_axis = pairs[found.number], seen.tensors_along(found.tensor.axis)[:TENSORS]
    quotient = f"{one.name} / {other.name}"
    pattern, meaning = f"analytic = {found.constant}numeric × {quotient}", found.form.interpretation(quotient)
    if _is_product_with(seen, one, [each for each in on_axis if each is not one and each is not other]):
        meaning = f", as where {one.name} stands for {other.name}{_location(seen, other)}"
    return claims_equal_cotangent(seen) or diagnosed_everywhere(MISSING_FACTOR, pattern, found.share, meaning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """A form of a tensor that, times a constant, is the ratio of the claims to the derivative."""

    number: int  # place of the tensor among the candidates
    tensor: Variable
    form: _Form
    constant: str  # "", "-", "2 × "
    share: float  # of the squared error that it explains


def _first_match(
    seen: BlockEntries, candidates: Iterable[Variable], forms: Sequence[_Form], accuracy: float = 0.0
) -> _Match | None:
    """Return the first factor that explains the error by itself, or else times a known constant; None if none does.

    The `accuracy` of the factors is relative, beyond that of the entries. A positive constant comes before a negative
    one, since the negative of a factor may be another one.
    """
    sample = _ratios(seen)
    if not (len(sample.values) and _varies_enough(sample, sample.values) and (tensors := list(candidates))):
        return None
    places = {Axis.INPUT: sample.columns, Axis.OUTPUT: sample.rows}
    values = torch.stack([tensor.values[places[tensor.axis]] for tensor in tensors])
    factors = torch.stack([form.function(values) for form in forms])
    found = sorted(_constants(sample, factors, accuracy), key=lambda each: (each[2] != 1.0, each[2] < 0))
    for form, number, constant, text in found:
        factor = (constant * forms[form].function(tensors[number].broadcast)).expand_as(seen.numeric)
        share = _share(seen, factor, accuracy)
        if share is not None:
            return _Match(number=number, tensor=tensors[number], form=forms[form], constant=text, share=share)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ratios:
    """Ratios at a sample of wrong and right entries that are measured well."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    values: Tensor  # (k,) claimed / numeric
    tolerance: Tensor  # (k,) relative


def _ratios(seen: BlockEntries) -> _Ratios:
    """Return the ratios at the sampled entries that are neither zero nor badly measured.

    The tolerance at a right entry includes the tolerance of the check.
    """
    rows, columns = (torch.cat(places) for places in zip(seen.sampled_wrong, seen.sampled_right, strict=True))
    accuracy = seen.slack[rows, columns] / seen.numeric[rows, columns].abs()
    chosen = seen.nonzero[rows, columns] & (accuracy <= _SHARP)
    rows, columns, accuracy = rows[chosen], columns[chosen], accuracy[chosen]
    values = seen.claimed[rows, columns] / seen.numeric[rows, columns]
    return _Ratios(rows=rows, columns=columns, values=values, tolerance=EQUAL_FACTORS + accuracy)


def _constants(sample: _Ratios, factors: Tensor, accuracy: float) -> Iterator[tuple[int, int, float, str]]:
    """Yield the place of each of the factors (f, t, k) with ratio = c·factor for a known constant c; c and its text."""
    quotients = sample.values / factors
    medians = quotients.median(dim=2, keepdim=True).values
    near = (quotients - medians).abs() <= (2 * sample.tolerance + accuracy) * medians.abs()
    accuracy += float(sample.tolerance.median())
    for form, number in near.all(2).nonzero().tolist():
        if _varies_enough(sample, factors[form, number]):
            median = float(medians[form, number])
            sign = "-" if median < 0 else ""
            if abs(abs(median) - 1.0) <= accuracy:
                yield form, number, math.copysign(1.0, median), sign
            elif (known := known_constant(median, accuracy)) is not None:
                yield form, number, math.copysign(known.value, median), f"{sign}{known.text} × "


def _varies_enough(sample: _Ratios, factor: Tensor) -> bool:
    """True if the factor (k,) has enough distinct values that agreement by chance is improbable."""
    ordered = factor.sort().values
    tolerance = float(sample.tolerance.median())
    distinct = ordered.diff() > 10 * tolerance * torch.maximum(ordered[1:].abs(), ordered[:-1].abs())
    count = 1 + int(distinct.sum())
    return count >= NO_ACCIDENT and (count - 1) * math.log(tolerance) <= math.log(_MAX_CHANCE)


def _share(seen: BlockEntries, factor: Tensor, accuracy: float) -> float | None:
    """Return the share of the error that claims of numeric times a factor (m, n) explain; None if they do not hold."""
    undefined = ~torch.isfinite(factor)
    if bool((undefined & seen.nonzero).any()):
        return None
    predicted = seen.numeric * factor
    agrees = (seen.claimed - predicted).abs() <= accuracy * predicted.abs()
    predicted = torch.where(undefined | agrees, seen.claimed, predicted)
    return seen.explained_share(predicted, float(factor[~undefined].abs().max()))


def _is_product_with(seen: BlockEntries, first: Variable, others: Sequence[Variable]) -> bool:
    """True if the claims are a constant times `first`, or times `first` and one other tensor.

    Otherwise the remaining factor may be a function of `first` too, and the tensor that it replaces is unknown.
    """
    quotient = seen.claimed / first.broadcast
    rests = (quotient, *(quotient / other.broadcast for other in others))
    return any(common_value(rest[seen.sampled_wrong], EQUAL_FACTORS) is not None for rest in rests)


def _location(seen: BlockEntries, tensor: Variable) -> str:
    """Return the position at which a factor is taken, "" if it is unambiguous."""
    block = block_along(seen.block, tensor.axis)
    if tensor.where or tensor.name == block.name:
        return f"{tensor.where} of {block.name}" if tensor.where else ""
    is_ambiguous = not seen.is_elementwise and seen.block.of.shape == seen.block.wrt.shape
    return f" at the same place of {block.name}" if is_ambiguous else ""


def _without_brackets(text: str) -> str:
    """Return the text without the brackets that enclose all of it."""
    inside = text[1:-1]
    return inside if text.startswith("(") and text.endswith(")") and "(" not in inside else text


def statistic_by_slice(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times, or over, a statistic of each row, channel or other slice."""
    for axis in axes_of(seen):
        block = block_along(seen.block, axis)
        for kept in _slicings(block.shape):
            found = _first_match(seen, _statistics(seen, axis, kept), _OF_STATISTICS, _NEAR)
            if found is not None:
                name = found.form.text(found.tensor.name)
                product = f"{found.constant}numeric {'/' if found.form.is_missing else '×'} {name}"
                text = f"analytic = {product} in {_slice_words(block, kept)}{share_text(found.share)}"
                text = f"{text}{found.form.interpretation(name)}"
                return Diagnosis(cause=MISSING_FACTOR, explanation=text, share=found.share)
    return None


def _slicings(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the choices of dimensions on whose indices a factor may depend, fewest slices first."""
    nontrivial = [dimension for dimension, size in enumerate(shape) if size > 1][:_MAX_DIMENSIONS]
    subsets = [kept for count in range(1, len(nontrivial)) for kept in combinations(nontrivial, count)]
    return sorted(subsets, key=lambda dimensions: total(tuple(shape[place] for place in dimensions)))


def _statistics(seen: BlockEntries, axis: Axis, kept: tuple[int, ...]) -> Iterator[Variable]:
    """Yield the statistics of each slice of each tensor, with one slice per index along `kept`."""
    block = block_along(seen.block, axis)
    sizes = [size if place in kept else 1 for place, size in enumerate(block.shape)]
    label = torch.arange(math.prod(sizes), device=seen.block.device).view(sizes).expand(block.shape).reshape(-1)
    order = label.argsort(stable=True)
    tensors = [tensor for tensor in seen.tensors_along(axis) if not tensor.where]
    for tensor in tensors:
        members = tensor.values[order].view(math.prod(sizes), -1)
        for name, statistic in _STATISTICS:
            yield Variable(name=f"the {name} of {tensor.name}", axis=axis, values=statistic(members)[label])


def _slice_words(block: Block, kept: tuple[int, ...]) -> str:
    if len(block.shape) == 2:
        return f"each {('row', 'column')[kept[0]]} of {block.name}"
    return f"each index along {dimensions_text(kept)} of {block.name}"


def claims_equal_tensor(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian whose nonzero entries are the values of one tensor, or their negatives."""
    nonzero = seen.claimed != 0
    if _are_mostly_zero(seen):
        return None
    claimed = seen.claimed[nonzero]
    for axis in Axis:
        for tensor in seen.tensors_along(axis):
            expected = tensor.broadcast.expand_as(seen.claimed)
            if bool((seen.wrong & ~nonzero & (expected != 0)).any()):
                continue  # the claim is zero although the tensor is not
            sign = next((sign for sign in (1.0, -1.0) if _match(claimed, sign * expected[nonzero])), None)
            if sign is not None:
                text = f"analytic = {'-' if sign == -1.0 else ''}{tensor.name}{tensor.where} and nothing else"
                text = f"{text}: a factor or a term is missing beside it, or another tensor belongs in its place"
                return seen.explained(torch.where(nonzero, sign * expected, 0.0), MISSING_FACTOR, text)
    return None


def claims_equal_cotangent(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian with one value in all nonzero entries, and no zero among the wrong entries."""
    nonzero = seen.claimed != 0
    if bool((seen.wrong & ~nonzero).any()) or int(seen.wrong.sum()) < AGREEING or _are_mostly_zero(seen):
        return None
    size, factor = seen.numeric[seen.wrong].abs(), common_value(seen.claimed[nonzero], EXACT)
    if factor is None or bool(size.max() - size.min() <= VARIES * size.max()):
        return None  # the derivative is one number too: a constant factor
    text = f"analytic = {multiple_in_words(factor, 'cotangent')} and nothing else"
    text = f"{text}: a factor or a term of the derivative is missing beside it"
    return seen.explained(torch.where(nonzero, factor, 0.0), MISSING_FACTOR, text)


def _are_mostly_zero(seen: BlockEntries) -> bool:
    """True if the derivative is zero in most wrong entries: then these entries are too many, and lack no factor."""
    return 2 * int((seen.wrong & seen.zero).sum()) > int(seen.wrong.sum())


def _match(claimed: Tensor, expected: Tensor) -> bool:
    near = (claimed - expected).abs() <= EXACT * expected.abs()
    return bool(near.all()) and int(torch.unique(expected).numel()) >= AGREEING
