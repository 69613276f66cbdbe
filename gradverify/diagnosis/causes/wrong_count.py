"""Wrong count: the common factor is made of counts, such as n for n - 1, or all elements for the valid ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import permutations, product

from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.causes.constant_factor import common_factor
from gradverify.diagnosis.naming.wording import dimensions_text, everywhere
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis, WrongBlock

WRONG_COUNT = "wrong-count"
_MIN_COUNT = 3  # smallest count considered: smaller ones match too many factors
_LARGE_COUNT = 11  # from here on a number is a count even by itself; a smaller one may be a constant of the formula
_PLAIN_FACTORS = ("2", "1/2")  # factors that are reported as constant-factor instead
_ACCURACY, _OF_DISTANCE = 1e-6, 1e-3  # tolerances relative to the factor and to its distance from 1
_MAX_DIMENSIONS = 6  # leading dimensions of a tensor whose sizes are counts


# Factors made of one count: the text, the factor, and the smallest count; the roots occur in a standard deviation.
_FORMS: tuple[tuple[str, Callable[[int], float], int], ...] = (
    ("n/(n - 1)", lambda n: n / (n - 1), _MIN_COUNT),
    ("(n - 1)/n", lambda n: (n - 1) / n, _MIN_COUNT),
    ("√(n/(n - 1))", lambda n: math.sqrt(n / (n - 1)), _MIN_COUNT),
    ("√((n - 1)/n)", lambda n: math.sqrt((n - 1) / n), _MIN_COUNT),
    ("n", float, _LARGE_COUNT),
    ("1/n", lambda n: 1 / n, _LARGE_COUNT),
    ("(n - 1)", lambda n: n - 1.0, _LARGE_COUNT),
    ("1/(n - 1)", lambda n: 1 / (n - 1), _LARGE_COUNT),
)


def wrong_count(compared: ComparedBlock) -> Diagnosis | None:
    """Detect one factor on every entry that is a function of one or two counts."""
    found, nonzero = common_factor(compared), compared.nonzero
    if found is None or found.value <= 0 or found.argument is not None or found.text in _PLAIN_FACTORS:
        return None  # a constant factor that names the argument is more specific
    live, least = None, _LARGE_COUNT  # inputs with a nonzero derivative, and the smallest count
    if nonzero is not None:
        live = int(nonzero.any(0).sum())
        least = _MIN_COUNT if bool((nonzero.sum(0) > 1).any()) or bool((nonzero.sum(1) > 1).any()) else _LARGE_COUNT
    words = {count: text for count, text in _counts(compared.block, live).items() if count >= least}
    allowed = min(_ACCURACY * found.value, _OF_DISTANCE * abs(found.value - 1.0))
    for text, value, counts in _factors(tuple(words)):
        if abs(value - found.value) <= allowed:
            definitions = (f"{name} = {count} = {words[count]}" for name, count in zip("nm", counts, strict=False))
            text = f"analytic = {text} × numeric{everywhere(found.share)}, with {' and '.join(definitions)}"
            return Diagnosis(cause=WRONG_COUNT, explanation=f"{text}: a count is wrong", share=found.share)
    return None


def _factors(counts: tuple[int, ...]) -> Iterator[tuple[str, float, tuple[int, ...]]]:
    """Yield the factors made of one or two counts, simplest first."""
    for (text, function, least), count in product(_FORMS, counts):
        if count >= least:
            yield text, function(count), (count,)
    for one, other in permutations(counts, 2):
        if one % other and other % one:  # a quotient that is an integer is a count by itself
            yield "n/m", one / other, (one, other)


def _counts(site: WrongBlock, live: int | None) -> dict[int, str]:
    """Return every count, described by the first tensor in which it occurs."""
    found: dict[int, str] = {}
    for block in (site.wrt, site.of, *site.inputs, *site.outputs):
        sizes = block.shape[:_MAX_DIMENSIONS]
        for size in dict.fromkeys(sizes):
            dimensions = dimensions_text(at for at, each in enumerate(sizes) if each == size)
            found.setdefault(size, f"size of {block.name}'s {dimensions}")
        found.setdefault(total(block.shape), f"number of {block.name}'s elements")
    for entry in site.backward.problem.bound:
        if isinstance(entry.value, Tensor) and _is_mask(entry.value):
            found.setdefault(int((entry.value != 0).sum()), f"number of {entry.name}'s elements that are not zero")
    if live is not None:
        found.setdefault(live, f"number of {site.wrt.name}'s elements with a derivative")
    return found


def _is_mask(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and not tensor.is_complex() and bool(((tensor == 0) | (tensor == 1)).all())
