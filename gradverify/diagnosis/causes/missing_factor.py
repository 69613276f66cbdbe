"""Missing factor: every entry is multiplied or divided by a function of a tensor's value at its position."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import permutations

import torch
from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries, explained, explained_share
from gradverify.diagnosis.block.relation import SAME_FACTOR, Ratios, multiple_in_words, ratios
from gradverify.diagnosis.block.structure import axes_of, is_elementwise
from gradverify.diagnosis.naming.constants import common_value, known_constant
from gradverify.diagnosis.naming.variables import Axis, Variable, differences, tensors_along
from gradverify.diagnosis.naming.wording import everywhere, share_text
from gradverify.evidence import Diagnosis, Evidence

MISSING_FACTOR = "missing-factor"
MULTIPLE = ": a factor of {} {}"  # its name, and "is missing" or "too many"
_MAX_CHANCE = 1e-9  # probability of an equally good agreement by chance above which nothing is reported
_MIN_DISTINCT = 3  # distinct values of a factor: two could be the constants of two regions
_MIN_ENTRIES = 4  # wrong entries, or distinct values of a tensor, that claims without a factor have to agree with
_VARIATION = 0.01  # relative variation of the numeric entries that rules out a constant
_EXACT = 1e-12  # relative: a product with one factor, up to float64 rounding
_MAX_TENSORS = 5  # per axis, whose pairwise quotients are tried

# A text, with {0} for the argument and {1} for the argument in brackets if it contains a space, and the function.
_Function = tuple[str, Callable[[Tensor], Tensor]]
# Simplest first. Reciprocals are not listed, since callers try each function and its reciprocal.
_FUNCTIONS: tuple[_Function, ...] = (
    ("{1}", lambda t: t),
    ("{1}²", torch.square),
    ("(1 - {1})", lambda t: 1 - t),
    ("(1 - {1}²)", lambda t: 1 - t * t),
    ("(1 + {1})", lambda t: 1 + t),
    ("(1 + {1}²)", lambda t: 1 + t * t),
    ("{1} (1 - {1})", lambda t: t * (1 - t)),
    ("√{1}", torch.sqrt),
    ("exp({0})", torch.exp),
    ("log({0})", torch.log),
    ("{1}³", lambda t: t**3),
)
_OF_DIFFERENCES = tuple(form for form in _FUNCTIONS if form[0] in ("{1}", "exp({0})", "(1 + {1})"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate factor on every entry, a function of one tensor or two, with its wording."""

    tensors: tuple[Variable, ...]
    function: Callable[..., Tensor]  # of the values of the tensors
    times: str  # format string of the product: "{} / y"
    interpretation: Callable[[], str]
    where: str = ""  # " in each row of x", "" for every entry
    signed: bool = False  # its negative is a candidate too, so only a positive constant counts


def missing_factor(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times, or over, an elementary function of an input, output or argument."""
    return first_match(seen, _single_tensor_multiples(seen))


def mistaken_factor(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times the quotient of two tensors, as if one were used for the other."""
    found = first_match(seen, _quotient_multiples(seen))
    return None if found is None else claims_equal_cotangent(seen) or found


def first_match(seen: BlockEntries, candidates: Iterable[Candidate], accuracy: float = 0.0) -> Diagnosis | None:
    """Return the diagnosis of the first factor that explains the error by itself, or else times a known constant.

    The `accuracy` of the factors is relative, beyond that of the entries.
    """
    sample = ratios(seen)
    tried = list(candidates) if _varies_enough(sample, sample.values) else []
    found = [each for each in _with_constants(sample, tried, accuracy) if each[1] > 0 or not each[0].signed]
    found.sort(key=lambda each: each[1] != 1.0)
    return next(filter(None, (_diagnosis(seen, *each, accuracy) for each in found)), None)


def _with_constants(
    sample: Ratios, tried: Sequence[Candidate], accuracy: float
) -> Iterator[tuple[Candidate, float, str]]:
    """Yield the candidates with ratio = c·factor at the sampled entries for a known constant c, with c and its text."""
    if not tried:
        return
    places = {Axis.INPUT: sample.columns, Axis.OUTPUT: sample.rows}
    sampled = cache(lambda tensor: tensor.values[places[tensor.axis]])
    factors = torch.stack([each.function(*map(sampled, each.tensors)) for each in tried])
    quotients = sample.values / factors
    medians = quotients.median(dim=1, keepdim=True).values
    near = (quotients - medians).abs() <= (2 * sample.tolerance + accuracy) * medians.abs()
    accuracy += float(sample.tolerance.median())
    for number in near.all(1).nonzero().flatten().tolist():
        median = float(medians[number])
        if _varies_enough(sample, factors[number]):
            if abs(abs(median) - 1.0) <= accuracy:
                yield tried[number], math.copysign(1.0, median), "-" if median < 0 else ""
            elif (known := known_constant(median, accuracy, ())) is not None:
                constant = math.copysign(known.value, median)
                yield tried[number], constant, f"{'-' if median < 0 else ''}{known.text} × "


def _varies_enough(sample: Ratios, factor: Tensor) -> bool:
    """True if the factor (k,) has enough distinct values that agreement by chance is improbable."""
    if not len(factor):
        return False
    ordered = factor.sort().values
    tolerance = float(sample.tolerance.median())
    distinct = ordered.diff() > 10 * tolerance * torch.maximum(ordered[1:].abs(), ordered[:-1].abs())
    count = 1 + int(distinct.sum())
    return count >= _MIN_DISTINCT and (count - 1) * math.log(tolerance) <= math.log(_MAX_CHANCE)


def _diagnosis(
    seen: BlockEntries, candidate: Candidate, constant: float, text: str, accuracy: float
) -> Diagnosis | None:
    factor = candidate.function(*(tensor.broadcast for tensor in candidate.tensors))
    factor = (constant * factor).expand_as(seen.numeric)
    undefined = ~torch.isfinite(factor)
    if bool((undefined & ~seen.zero).any()):
        return None
    predicted = seen.numeric * factor
    agrees = (seen.claimed - predicted).abs() <= accuracy * predicted.abs()
    predicted = torch.where(undefined | agrees, seen.claimed, predicted)
    share = explained_share(seen, predicted, float(factor[~undefined].abs().max()))
    if share is None:
        return None
    where = candidate.where + share_text(share) if candidate.where else everywhere(share)
    text = f"analytic = {text}{candidate.times.format('numeric')}{where}{candidate.interpretation()}"
    return Diagnosis(cause=MISSING_FACTOR, explanation=text, share=share)


def _single_tensor_multiples(seen: BlockEntries) -> Iterator[Candidate]:
    """Yield elementary functions of each tensor, then of the difference of two."""
    tensors, ambiguous = _tensors(seen), _is_position_ambiguous(seen)
    for form in _FUNCTIONS:
        for tensor in tensors:
            yield from _both_ways(form, tensor, _location(seen.block, tensor, ambiguous))
    for tensor in differences(tensors):
        for form in _OF_DIFFERENCES:
            yield from _both_ways(form, tensor, _location(seen.block, tensor, ambiguous), signed=True)


def _quotient_multiples(seen: BlockEntries) -> Iterator[Candidate]:
    """Yield the quotients of two tensors along the same axis."""
    tensors = _tensors(seen)
    for axis in (Axis.INPUT, Axis.OUTPUT):
        on_axis = [tensor for tensor in tensors if tensor.axis is axis][:_MAX_TENSORS]
        for first, second in permutations(on_axis, 2):
            others = [tensor for tensor in on_axis if tensor is not first and tensor is not second]
            yield Candidate(
                tensors=(first, second),
                function=torch.div,
                times=f"{{}} × {first.name} / {second.name}",
                interpretation=partial(_interpretation, seen, first, second, others),
            )


def _interpretation(seen: BlockEntries, first: Variable, second: Variable, others: Sequence[Variable]) -> str:
    """Return what claims of numeric times first / second mean."""
    if _is_product_with(seen, first, others):
        location = _location(seen.block, second, _is_position_ambiguous(seen))
        return f", as where {first.name} stands for {second.name}{location}"
    return MULTIPLE.format(f"{first.name} / {second.name}", "too many")


def _is_product_with(seen: BlockEntries, first: Variable, others: Sequence[Variable]) -> bool:
    """True if the claims are a constant times `first`, or times `first` and one other tensor.

    Otherwise the remaining factor may be a function of `first` too, and the tensor that it replaces is unknown.
    """
    quotient = seen.claimed / first.broadcast
    rests = (quotient, *(quotient / other.broadcast for other in others))
    return any(common_value(rest[seen.sampled_wrong.places], SAME_FACTOR) is not None for rest in rests)


def _tensors(seen: BlockEntries) -> list[Variable]:
    """Return the tensors that fit along the inputs, and along the outputs unless the function is elementwise."""
    return [tensor for axis in axes_of(seen) for tensor in tensors_along(seen.block, axis)]


def _is_position_ambiguous(seen: BlockEntries) -> bool:
    """True if a position may mean that of the input or of the output: equal shapes, but not elementwise."""
    return not is_elementwise(seen) and seen.block.of.shape == seen.block.wrt.shape


def _both_ways(form: _Function, tensor: Variable, location: str, signed: bool = False) -> Iterator[Candidate]:
    """Yield the reciprocal (a missing factor) and the function itself (a factor too many)."""
    name = form[0].format(tensor.name, f"({tensor.name})" if " " in tensor.name else tensor.name)
    for times, function, predicate in (
        (f"{{}} / {name}", lambda t: 1 / form[1](t), "is missing"),
        (f"{name} × {{}}", form[1], "too many"),
    ):
        interpretation = partial(MULTIPLE.format, f"{_without_brackets(name)}{location}", predicate)
        yield Candidate(tensors=(tensor,), function=function, times=times, interpretation=interpretation, signed=signed)


def _location(evidence: Evidence, tensor: Variable, ambiguous: bool) -> str:
    """Return the position at which a factor is taken, "" if it is unambiguous."""
    block = evidence.wrt if tensor.axis is Axis.INPUT else evidence.of
    if tensor.where:
        return f"{tensor.where} of {block.name}"
    return f" at the same place of {block.name}" if ambiguous and tensor.name != block.name else ""


def _without_brackets(text: str) -> str:
    """Return the text without the brackets that enclose all of it."""
    inside = text[1:-1]
    return inside if text.startswith("(") and text.endswith(")") and "(" not in inside else text


def claims_equal_tensor(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian whose nonzero entries are the values of one tensor, or their negatives."""
    nonzero = seen.claimed != 0
    claimed = seen.claimed[nonzero]
    for axis in Axis:
        for tensor in tensors_along(seen.block, axis):
            expected = tensor.broadcast.expand_as(seen.claimed)
            if bool((seen.wrong & ~nonzero & (expected != 0)).any()):
                continue  # the claim is zero although the tensor is not
            sign = next((sign for sign in (1.0, -1.0) if _match(claimed, sign * expected[nonzero])), None)
            if sign is not None:
                text = f"analytic = {'-' if sign == -1.0 else ''}{tensor.name}{tensor.where} and nothing else"
                text = f"{text}: a factor or a term is missing beside it, or another tensor belongs in its place"
                return explained(seen, torch.where(nonzero, sign * expected, 0.0), MISSING_FACTOR, text)
    return None


def claims_equal_cotangent(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian with one value in all nonzero entries, and no zero among the wrong entries."""
    nonzero = seen.claimed != 0
    if bool((seen.wrong & ~nonzero).any()) or int(seen.wrong.sum()) < _MIN_ENTRIES:
        return None
    size, factor = seen.numeric[seen.wrong].abs(), common_value(seen.claimed[nonzero], _EXACT)
    if factor is None or bool(size.max() - size.min() <= _VARIATION * size.max()):
        return None  # the derivative is one number too: a constant factor
    text = f"analytic = {multiple_in_words(factor, 'cotangent')} and nothing else"
    text = f"{text}: a factor or a term of the derivative is missing beside it"
    return explained(seen, torch.where(nonzero, factor, 0.0), MISSING_FACTOR, text)


def _match(claimed: Tensor, expected: Tensor) -> bool:
    near = (claimed - expected).abs() <= _EXACT * expected.abs()
    return bool(near.all()) and int(torch.unique(expected).numel()) >= _MIN_ENTRIES
