"""Wrong count: the common factor is made of counts, such as n for n - 1, or all elements for the valid ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.causes.constant_factor import common_factor
from gradverify.diagnosis.naming.wording import everywhere, listed
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis, WrongBlock

WRONG_COUNT = "wrong-count"
_MIN_COUNT = 3  # smallest count considered: smaller ones match too many factors
_LARGE_COUNT = 11  # from here on a number is a count even by itself; a smaller one may be a constant of the formula
_PLAIN_FACTORS = ("2", "1/2")  # factors that are reported as constant-factor instead
_ACCURACY, _OF_DISTANCE = 1e-6, 1e-3  # tolerances relative to the factor and to its distance from 1
_MAX_DIMENSIONS = 6  # leading dimensions of a tensor whose sizes are counts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """A count and its description."""

    value: int
    words: str  # size of x's dimension 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A factor computed from counts."""

    text: str  # n/(n - 1)
    value: float
    counts: tuple[_Count, ...]


def wrong_count(compared: ComparedBlock) -> Diagnosis | None:
    """Detect one factor on every entry that is a function of one or two counts."""
    found, nonzero = common_factor(compared), compared.nonzero
    if found is None or found.value <= 0 or found.argument is not None:
        return None  # a constant factor that names the argument is more specific
    if found.known is not None and found.known.text in _PLAIN_FACTORS:
        return None
    live, least = None, _LARGE_COUNT  # inputs with a nonzero derivative, and the smallest count
    if nonzero is not None:
        live = int(nonzero.any(0).sum())
        least = _MIN_COUNT if bool((nonzero.sum(0) > 1).any()) or bool((nonzero.sum(1) > 1).any()) else _LARGE_COUNT
    site = compared.block
    allowed = min(_ACCURACY * found.value, _OF_DISTANCE * abs(found.value - 1.0))
    for form in _forms([count for count in _counts(site, live) if count.value >= least]):
        if abs(form.value - found.value) <= allowed:
            definitions = (
                f"{name} = {each.value} = {each.words}" for name, each in zip("nm", form.counts, strict=False)
            )
            text = f"analytic = {form.text} × numeric{everywhere(found.share)}, with {' and '.join(definitions)}"
            return Diagnosis(cause=WRONG_COUNT, explanation=f"{text}: a count is wrong", share=found.share)
    return None


_BESSEL_FORMS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("n/(n - 1)", lambda n: n / (n - 1)),
    ("(n - 1)/n", lambda n: (n - 1) / n),
    ("√(n/(n - 1))", lambda n: math.sqrt(n / (n - 1))),
    ("√((n - 1)/n)", lambda n: math.sqrt((n - 1) / n)),
)
_SINGLE_FORMS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("n", float),
    ("1/n", lambda n: 1 / n),
    ("(n - 1)", lambda n: n - 1.0),
    ("1/(n - 1)", lambda n: 1 / (n - 1)),
)


def _forms(counts: list[_Count]) -> Iterator[_Form]:
    """Yield the factors made of one or two counts, simplest first; the roots occur in a standard deviation."""
    large = [count for count in counts if count.value >= _LARGE_COUNT]
    for forms, usable in ((_BESSEL_FORMS, counts), (_SINGLE_FORMS, large)):
        for (text, function), count in product(forms, usable):
            yield _Form(text=text, value=function(count.value), counts=(count,))
    for one, other in permutations(counts, 2):
        if one.value % other.value and other.value % one.value:  # a quotient that is an integer is a count by itself
            yield _Form(text="n/m", value=one.value / other.value, counts=(one, other))


def _counts(site: WrongBlock, live: int | None) -> Iterator[_Count]:
    """Yield every count once, described by the first tensor in which it occurs."""
    found: dict[int, str] = {}
    for block in (site.wrt, site.of, *site.inputs, *site.outputs):
        sizes = block.shape[:_MAX_DIMENSIONS]
        for size in dict.fromkeys(sizes):
            dimensions = [str(at) for at, each in enumerate(sizes) if each == size]
            plural = "s" if len(dimensions) > 1 else ""
            found.setdefault(size, f"size of {block.name}'s dimension{plural} {listed(dimensions)}")
        found.setdefault(total(block.shape), f"number of {block.name}'s elements")
    for entry in site.backward.problem.bound:
        if isinstance(entry.value, Tensor) and _is_mask(entry.value):
            found.setdefault(int((entry.value != 0).sum()), f"number of {entry.name}'s elements that are not zero")
    if live is not None:
        found.setdefault(live, f"number of {site.wrt.name}'s elements with a derivative")
    return (_Count(value=value, words=words) for value, words in found.items())


def _is_mask(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and not tensor.is_complex() and bool(((tensor == 0) | (tensor == 1)).all())
