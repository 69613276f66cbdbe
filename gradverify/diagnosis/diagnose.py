"""The list of all causes, and the search for the first that explains an error: in entries, sums or excerpts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from gradverify.diagnosis.block.entries import BlockEntries, entries_of
from gradverify.diagnosis.block.shifted_problem import evidence_in
from gradverify.diagnosis.causes.approximate import approximate
from gradverify.diagnosis.causes.boundary_tile import boundary_tile
from gradverify.diagnosis.causes.confined_to_places import confined_to_places
from gradverify.diagnosis.causes.constant_factor import constant_factor, mean_for_sum, sign_flip
from gradverify.diagnosis.causes.constant_factor_by_slice import factor_by_slice
from gradverify.diagnosis.causes.detached import detached
from gradverify.diagnosis.causes.low_precision_backward import low_precision_backward, low_precision_backward_in_sums
from gradverify.diagnosis.causes.missing_band import missing_band
from gradverify.diagnosis.causes.missing_broadcast_sum import missing_broadcast_sum, missing_broadcast_sum_in_sums
from gradverify.diagnosis.causes.missing_conjugate import missing_conjugate
from gradverify.diagnosis.causes.missing_cotangent import (
    has_constant_part,
    has_constant_part_in_sums,
    missing_cotangent,
    missing_cotangent_in_sums,
)
from gradverify.diagnosis.causes.missing_factor import missing_factor, mistaken_factor
from gradverify.diagnosis.causes.missing_factor_by_slice import statistic_by_slice
from gradverify.diagnosis.causes.missing_mask import missing_mask
from gradverify.diagnosis.causes.missing_term import missing_path, missing_term, missing_term_in_sums
from gradverify.diagnosis.causes.missing_term_summand import (
    claims_equal_cotangent,
    claims_equal_tensor,
    missing_summand,
)
from gradverify.diagnosis.causes.outside_slopes import outside_slopes
from gradverify.diagnosis.causes.permuted import (
    permuted,
    rearranged_in_sums,
    shifted,
    transposed,
)
from gradverify.diagnosis.causes.single_elements import few_elements, few_entries, one_element, single_elements
from gradverify.diagnosis.causes.straight_through import straight_through
from gradverify.diagnosis.causes.swapped import swapped_inputs, swapped_outputs
from gradverify.diagnosis.causes.symmetrised import symmetrised
from gradverify.diagnosis.causes.wrong_axis import wrong_axis
from gradverify.diagnosis.causes.wrong_branch import wrong_branch
from gradverify.diagnosis.causes.wrong_count import wrong_count
from gradverify.diagnosis.causes.wrong_point import wrong_point, wrong_point_in_backward
from gradverify.diagnosis.projections.excerpt import excerpts
from gradverify.diagnosis.projections.sampled_lines import SampledLines, sampled_lines
from gradverify.diagnosis.projections.sums import RandomProjections, ask
from gradverify.errors import GradverifyError
from gradverify.evidence import Diagnosis, LargeBlock, WrongBlock

Find = Callable[[BlockEntries], Diagnosis | None]
_COUNT = 2  # excerpts that have to agree
# Causes that sums over the whole block cannot show. They would have shown any other cause that is true of all of it.
_ONLY_IN_EXCERPTS = frozenset(
    {"straight-through", "missing-mask", "missing-factor", "wrong-branch", "wrong-axis", "missing-term", "wrong-point"}
)
_CALLS = 5  # samples per allowed evaluation: many share a call with others
_NEAR = 0.05  # largest relative difference of thresholds, which lie between the numbers of an excerpt
_COUNTS = re.compile(r"[0-9][0-9,]* of [0-9][0-9,]*")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause and the function that tests for it."""

    name: str
    find: Find  # returns None if the cause does not explain the error


def _missing_factor(entries: BlockEntries) -> Diagnosis | None:
    found = missing_factor(entries) or statistic_by_slice(entries)
    if found is not None:
        return found
    found = mistaken_factor(entries)
    if found is None or wrong_branch(entries):
        return None  # a region is the simpler explanation
    return claims_equal_cotangent(entries) or found


def _single_elements(entries: BlockEntries) -> Diagnosis | None:
    return factor_by_slice(entries) or single_elements(entries)


# Simplest first: patterns without a free parameter before those with one, patterns of all entries before regions.
CAUSES: tuple[Cause, ...] = (
    Cause(name="missing-cotangent", find=missing_cotangent),
    Cause(name="low-precision-backward", find=low_precision_backward),
    Cause(name="outside-slopes", find=outside_slopes),
    Cause(name="missing-conjugate", find=missing_conjugate),
    Cause(name="sign-flip", find=sign_flip),
    Cause(name="swapped-inputs", find=swapped_inputs),
    Cause(name="swapped-outputs", find=swapped_outputs),
    Cause(name="detached", find=detached),
    Cause(name="mean-for-sum", find=mean_for_sum),
    Cause(name="wrong-count", find=wrong_count),
    Cause(name="constant-factor", find=constant_factor),
    Cause(name="straight-through", find=straight_through),
    Cause(name="missing-band", find=missing_band),
    Cause(name="missing-mask", find=missing_mask),
    Cause(name="missing-broadcast-sum", find=missing_broadcast_sum),
    Cause(name="transposed", find=transposed),
    Cause(name="shifted", find=shifted),
    Cause(name="permuted", find=permuted),
    Cause(name="symmetrised", find=symmetrised),
    Cause(name="wrong-point", find=wrong_point),
    Cause(name="missing-factor", find=_missing_factor),
    Cause(name="boundary-tile", find=boundary_tile),
    Cause(name="wrong-branch", find=wrong_branch),
    Cause(name="wrong-axis", find=wrong_axis),
    Cause(name="missing-term", find=missing_term),
    Cause(name="single-elements", find=_single_elements),
    Cause(name="approximate", find=approximate),
)
_FALLBACKS = (
    wrong_point_in_backward,
    missing_path,
    missing_summand,
    claims_equal_tensor,
    claims_equal_cotangent,
)  # tried after all patterns, as they explain least


# The causes that random sums can test: an error in a single element first, then patterns of all entries.
_IN_SUMS: tuple[Callable[[RandomProjections], Diagnosis | None], ...] = (
    one_element,
    low_precision_backward_in_sums,
    missing_conjugate,
    swapped_inputs,
    swapped_outputs,
    detached,
    sign_flip,
    mean_for_sum,
    wrong_count,
    constant_factor,
)
# Then those that a sample of columns and rows suggests.
_IN_SAMPLE: tuple[Callable[[SampledLines], Diagnosis | None], ...] = (
    missing_broadcast_sum_in_sums,
    rearranged_in_sums,
    confined_to_places,
    missing_term_in_sums,
    few_elements,
)


def diagnose(block: WrongBlock) -> Diagnosis | None:
    """Return the first cause that explains at least 99 % of the squared error of a block, None if there is none.

    If a part of the error does not depend on the cotangent, only a missing cotangent is tried.
    """
    if isinstance(block, LargeBlock):
        return _diagnosed_in_sums(block) or _diagnosed_in_excerpts(block)
    entries = entries_of(block)
    if entries is None:
        return None
    without_cotangent = missing_cotangent(entries)
    if without_cotangent is not None or has_constant_part(entries):
        return without_cotangent
    _, *patterns, approximate_last = (cause.find for cause in CAUSES)
    finds = (*patterns, *_FALLBACKS, approximate_last)
    return next(filter(None, (find(entries) for find in finds)), None)


def _diagnosed_in_sums(block: LargeBlock) -> Diagnosis | None:
    """Return the first cause that agrees with all random sums over a block; None if none does, or a call fails."""
    try:
        projections = ask(block)
        if not bool((projections.error_size > 0).any()):
            return None
        without_cotangent = missing_cotangent_in_sums(projections)
        if without_cotangent is not None or has_constant_part_in_sums(projections):
            return without_cotangent
        found = next(filter(None, (cause(projections) for cause in _IN_SUMS)), None)
        if found is not None:
            return found
        entries = few_entries(projections)
        if entries is not None and block.wrong_entries.total == 1:
            return entries
        sample, causes = sampled_lines(projections), _IN_SAMPLE if entries is None else (confined_to_places,)
        return next(filter(None, (cause(sample) for cause in causes)), entries)
    except GradverifyError:  # an evaluation failed
        return None


def _diagnosed_in_excerpts(sums: LargeBlock) -> Diagnosis | None:
    """Return the cause that all excerpts of a block have in common; None if they differ or there are none."""
    diagnoses: list[Diagnosis] = []
    try:
        for excerpt in excerpts(sums, _COUNT, _CALLS * sums.settings.max_evaluations):
            evidence = evidence_in(excerpt, sums.of.name, sums.wrt.name, sums.settings)
            found = None if evidence is None else diagnose(evidence)
            if found is None or found.cause not in _ONLY_IN_EXCERPTS or (diagnoses and not _same(found, diagnoses[0])):
                return None
            diagnoses.append(found)
    except GradverifyError:  # no cause if an excerpt cannot be evaluated
        return None
    if not diagnoses:
        return None
    scope = "in an excerpt of this block, and in another"
    return replace(
        diagnoses[0], explanation=f"{diagnoses[0].explanation} ({scope})", share=min(each.share for each in diagnoses)
    )


def _same(one: Diagnosis, other: Diagnosis) -> bool:
    """True if both give the same explanation, apart from counts of entries and the accuracy of numbers."""
    (words, numbers), (others, theirs) = (_template(each.explanation) for each in (one, other))
    return (one.cause, words) == (other.cause, others) and all(map(_near, numbers, theirs))


def _template(text: str) -> tuple[str, list[str]]:
    """Return a text with its numbers replaced, and those of the numbers that are not counts."""
    uncounted = _COUNTS.sub("", text)
    return _NUMBER.sub("#", uncounted), _NUMBER.findall(uncounted)


def _near(one: str, other: str) -> bool:
    """True if two numbers agree. Whole numbers must be equal: they may be indices."""
    return one == other or ("." in one + other and math.isclose(float(one), float(other), rel_tol=_NEAR))
