"""Every entry is off by a count: n for n - 1, the size of another dimension, all elements for the valid ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.causes.factor import Factor, everywhere_factor
from gradverify.diagnosis.naming.wording import everywhere, listed

WRONG_COUNT = "wrong-count"
_LEAST = 3  # with fewer, any small number is a count
NO_CONSTANT = 11  # a smaller number may be a constant of the formula
_PLAIN = ("2", "1/2")  # factors that are forgotten for other reasons
_ACCURACY, _OF_DISTANCE = 1e-6, 1e-3  # relative accuracy of a factor at best, and of its distance from one
_DIMENSIONS = 6  # of a tensor, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """A number of entries, and what it counts."""

    value: int
    words: str  # size of x's dimension 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A factor that counts make, in words and as a number."""

    text: str  # n/(n - 1)
    value: float
    counts: tuple[_Count, ...]


def wrong_count(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry is multiplied by one factor, which is made of counts."""
    found = everywhere_factor(evidence, seen)
    if found is None:
        return None
    live = (~seen.zero).long()
    summing = bool((live.sum(0) > 1).any()) or bool((live.sum(1) > 1).any())
    return as_count(evidence, found, int(live.any(0).sum()), least=_LEAST if summing else NO_CONSTANT)


def as_count(site: Site, found: Factor, live: int | None, least: int) -> Diagnosis | None:
    """Return the diagnosis of a factor that counts of `least` or more make; `live` inputs have a derivative."""
    plain = found.known is not None and found.known.text in _PLAIN
    if found.value <= 0 or plain or found.argument is not None:
        return None  # an argument that is as large says more of where the factor is from
    allowed = min(_ACCURACY * found.value, _OF_DISTANCE * abs(found.value - 1.0))
    for form in _forms([count for count in _counts(site, live) if count.value >= least]):
        if abs(form.value - found.value) <= allowed:
            told = (f"{name} = {each.value} = {each.words}" for name, each in zip("nm", form.counts, strict=False))
            text = f"analytic = {form.text} × numeric{everywhere(found.share)}, with {' and '.join(told)}"
            return Diagnosis(cause=WRONG_COUNT, explanation=f"{text}: a count is wrong", share=found.share)
    return None


_BESSEL: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("n/(n - 1)", lambda n: n / (n - 1)),
    ("(n - 1)/n", lambda n: (n - 1) / n),
    ("√(n/(n - 1))", lambda n: math.sqrt(n / (n - 1))),
    ("√((n - 1)/n)", lambda n: math.sqrt((n - 1) / n)),
)
_ALONE: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("n", float),
    ("1/n", lambda n: 1 / n),
    ("(n - 1)", lambda n: n - 1.0),
    ("1/(n - 1)", lambda n: 1 / (n - 1)),
)


def _forms(counts: list[_Count]) -> Iterator[_Form]:
    """Yield the factors that counts make, the simplest first; roots are those of a standard deviation."""
    large = [count for count in counts if count.value >= NO_CONSTANT]
    for forms, some in ((_BESSEL, counts), (_ALONE, large)):
        for (text, function), count in product(forms, some):
            yield _Form(text=text, value=function(count.value), counts=(count,))
    for one, other in permutations(counts, 2):
        if one.value % other.value and other.value % one.value:  # else it is another count, by itself
            yield _Form(text="n/m", value=one.value / other.value, counts=(one, other))


def _counts(site: Site, live: int | None) -> Iterator[_Count]:
    """Yield every count once, with the names that it has in the first tensor where it occurs."""
    found: dict[int, str] = {}
    for block in (site.wrt, site.of, *site.inputs, *site.outputs):
        sizes = block.shape[:_DIMENSIONS]
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
