"""The list of all causes, and the search for the first that explains an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradverify.diagnosis.block.entries import BlockEntries, entries_of
from gradverify.diagnosis.causes.approximate import approximate
from gradverify.diagnosis.causes.boundary_tile import boundary_tile
from gradverify.diagnosis.causes.constant_factor import constant_factor, mean_for_sum, sign_flip
from gradverify.diagnosis.causes.constant_factor_by_slice import factor_by_slice
from gradverify.diagnosis.causes.detached import detached
from gradverify.diagnosis.causes.low_precision_backward import low_precision_backward
from gradverify.diagnosis.causes.missing_band import missing_band
from gradverify.diagnosis.causes.missing_broadcast_sum import missing_broadcast_sum
from gradverify.diagnosis.causes.missing_conjugate import missing_conjugate
from gradverify.diagnosis.causes.missing_cotangent import has_constant_part, missing_cotangent
from gradverify.diagnosis.causes.missing_factor import missing_factor, mistaken_factor
from gradverify.diagnosis.causes.missing_factor_by_slice import statistic_by_slice
from gradverify.diagnosis.causes.missing_mask import missing_mask
from gradverify.diagnosis.causes.missing_mask_inverted import inverted_mask
from gradverify.diagnosis.causes.missing_term import missing_term
from gradverify.diagnosis.causes.missing_term_path import missing_path
from gradverify.diagnosis.causes.missing_term_summand import (
    claims_equal_cotangent,
    claims_equal_tensor,
    missing_multiple_per_line,
    missing_summand,
)
from gradverify.diagnosis.causes.outside_slopes import outside_slopes
from gradverify.diagnosis.causes.permuted import permuted, shifted, transposed
from gradverify.diagnosis.causes.single_elements import is_confined_to_one_input, single_elements
from gradverify.diagnosis.causes.straight_through import straight_through
from gradverify.diagnosis.causes.swapped import swapped_inputs, swapped_outputs
from gradverify.diagnosis.causes.symmetrised import symmetrised
from gradverify.diagnosis.causes.wrong_axis import wrong_axis
from gradverify.diagnosis.causes.wrong_branch import wrong_branch
from gradverify.diagnosis.causes.wrong_branch_both import two_wrong_branches
from gradverify.diagnosis.causes.wrong_count import wrong_count
from gradverify.diagnosis.causes.wrong_point import wrong_point, wrong_point_in_backward
from gradverify.diagnosis.excerpts import diagnosed_in_excerpts
from gradverify.diagnosis.sums.search import diagnose_sums
from gradverify.evidence import Diagnosis, Evidence, LargeBlock, WrongBlock

Find = Callable[[Evidence, BlockEntries], Diagnosis | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause and the function that tests for it."""

    name: str
    find: Find  # returns None if the cause does not explain the error


def _wrong_branch(evidence: Evidence, entries: BlockEntries) -> Diagnosis | None:
    if is_confined_to_one_input(entries):
        return None
    return wrong_branch(evidence, entries) or two_wrong_branches(evidence, entries)


def _missing_mask(evidence: Evidence, entries: BlockEntries) -> Diagnosis | None:
    return missing_mask(evidence, entries) or inverted_mask(evidence, entries)


def _missing_factor(evidence: Evidence, entries: BlockEntries) -> Diagnosis | None:
    found = missing_factor(evidence, entries) or statistic_by_slice(evidence, entries)
    if found is not None:
        return found
    found = mistaken_factor(evidence, entries)
    if found is None or _wrong_branch(evidence, entries):
        return None  # a region is the simpler explanation
    return claims_equal_cotangent(evidence, entries) or found


def _single_elements(evidence: Evidence, entries: BlockEntries) -> Diagnosis | None:
    return factor_by_slice(evidence, entries) or single_elements(evidence, entries)


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
    Cause(name="missing-mask", find=_missing_mask),
    Cause(name="missing-broadcast-sum", find=missing_broadcast_sum),
    Cause(name="transposed", find=transposed),
    Cause(name="shifted", find=shifted),
    Cause(name="permuted", find=permuted),
    Cause(name="symmetrised", find=symmetrised),
    Cause(name="wrong-point", find=wrong_point),
    Cause(name="missing-factor", find=_missing_factor),
    Cause(name="boundary-tile", find=boundary_tile),
    Cause(name="wrong-branch", find=_wrong_branch),
    Cause(name="wrong-axis", find=wrong_axis),
    Cause(name="missing-term", find=missing_term),
    Cause(name="single-elements", find=_single_elements),
    Cause(name="approximate", find=approximate),
)
_FALLBACKS = (
    wrong_point_in_backward,
    missing_path,
    missing_summand,
    missing_multiple_per_line,
    claims_equal_tensor,
    claims_equal_cotangent,
)  # tried after all patterns, as they explain least


def diagnose(evidence: WrongBlock) -> Diagnosis | None:
    """Return the first cause that explains at least 99 % of the squared error of a block, None if there is none.

    If a part of the error does not depend on the cotangent, only a missing cotangent is tried.
    """
    if isinstance(evidence, LargeBlock):
        return diagnose_sums(evidence) or diagnosed_in_excerpts(evidence, diagnose)
    entries = entries_of(evidence)
    if entries is None:
        return None
    without_cotangent = missing_cotangent(evidence, entries)
    if without_cotangent is not None or has_constant_part(evidence, entries):
        return without_cotangent
    _, *patterns, approximate_last = (cause.find for cause in CAUSES)
    finds = (*patterns, *_FALLBACKS, approximate_last)
    return next(filter(None, (find(evidence, entries) for find in finds)), None)
