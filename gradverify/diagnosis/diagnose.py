"""The list of all causes, and the search for the first that explains an error: in entries, sums or excerpts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from gradverify.diagnosis.block.elsewhere import evidence_in
from gradverify.diagnosis.block.entries import BlockEntries, entries_of
from gradverify.diagnosis.causes.approximate import approximate
from gradverify.diagnosis.causes.boundary_tile import boundary_tile
from gradverify.diagnosis.causes.confined_to_places import confined_to_places
from gradverify.diagnosis.causes.constant_factor import common_factor, factor_by_slice, mean_for_sum_by_line, sign_flip
from gradverify.diagnosis.causes.detached import detached
from gradverify.diagnosis.causes.low_precision_backward import low_precision_backward
from gradverify.diagnosis.causes.missing_band import missing_band
from gradverify.diagnosis.causes.missing_broadcast_sum import missing_broadcast_sum, missing_broadcast_sum_in_sums
from gradverify.diagnosis.causes.missing_conjugate import missing_conjugate
from gradverify.diagnosis.causes.missing_cotangent import missing_cotangent, vjp_of_zero
from gradverify.diagnosis.causes.missing_factor import (
    claims_equal_cotangent,
    claims_equal_tensor,
    missing_factor,
    mistaken_factor,
    statistic_by_slice,
)
from gradverify.diagnosis.causes.missing_mask import missing_mask
from gradverify.diagnosis.causes.missing_term import missing_path, missing_summand, missing_term, missing_term_in_sums
from gradverify.diagnosis.causes.outside_slopes import outside_slopes
from gradverify.diagnosis.causes.permuted import permuted, rearranged_in_sums, shifted, transposed
from gradverify.diagnosis.causes.single_elements import few_elements, few_entries, single_elements
from gradverify.diagnosis.causes.straight_through import straight_through
from gradverify.diagnosis.causes.swapped import swapped, swapped_rows
from gradverify.diagnosis.causes.symmetrised import symmetrised
from gradverify.diagnosis.causes.wrong_axis import sum_along_other_dimension, wrong_axis
from gradverify.diagnosis.causes.wrong_branch import wrong_branch
from gradverify.diagnosis.causes.wrong_point import wrong_point, wrong_point_in_backward
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import first
from gradverify.diagnosis.projections.excerpt import excerpts
from gradverify.diagnosis.projections.sums import RandomProjections, ask
from gradverify.errors import GradverifyError
from gradverify.evidence import Diagnosis, Evidence, LargeBlock, WrongBlock

Find = Callable[[BlockEntries], Diagnosis | None]  # returns None if the cause does not explain the error
Compared = TypeVar("Compared", BlockEntries, RandomProjections)
_COUNT = 2  # excerpts that have to agree
# Causes that sums over the whole block cannot show. They would have shown any other cause that is true of all of it.
_ONLY_IN_EXCERPTS = frozenset(
    {"straight-through", "missing-mask", "missing-factor", "wrong-branch", "wrong-axis", "missing-term", "wrong-point"}
)
_CALLS = 5  # samples per allowed evaluation: many share a call with others
_NEAR = 0.05  # largest relative difference of thresholds, which lie between the numbers of an excerpt
_COUNTS = re.compile(r"[0-9][0-9,]* of [0-9][0-9,]*")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")


# Simplest first: patterns without a free parameter before those with one, patterns of all entries before regions, and
# last those that explain least.
CAUSES: tuple[Find, ...] = (
    missing_cotangent,
    low_precision_backward,
    outside_slopes,
    missing_conjugate,
    sign_flip,
    partial(swapped, axis=Axis.INPUT),
    partial(swapped, axis=Axis.OUTPUT),
    swapped_rows,
    detached,
    common_factor,
    mean_for_sum_by_line,
    straight_through,
    missing_band,
    missing_mask,
    missing_broadcast_sum,
    sum_along_other_dimension,
    transposed,
    shifted,
    permuted,
    symmetrised,
    wrong_point,
    missing_factor,
    statistic_by_slice,
    boundary_tile,
    wrong_branch,
    mistaken_factor,
    wrong_axis,
    missing_term,
    factor_by_slice,
    single_elements,
    wrong_point_in_backward,
    missing_path,
    missing_summand,
    claims_equal_tensor,
    claims_equal_cotangent,
    approximate,
)
# The causes that random sums can test: after a missing cotangent an error in a single element, then patterns of all
# entries, then those that a sample of columns and rows suggests.
_IN_SUMS: tuple[Callable[[RandomProjections], Diagnosis | None], ...] = (
    missing_cotangent,
    partial(few_elements, counts=range(1, 2)),
    low_precision_backward,
    missing_conjugate,
    partial(swapped, axis=Axis.INPUT),
    partial(swapped, axis=Axis.OUTPUT),
    detached,
    sign_flip,
    common_factor,
    partial(few_entries, most=1),
    missing_broadcast_sum_in_sums,
    rearranged_in_sums,
    confined_to_places,
    few_entries,
    missing_term_in_sums,
    few_elements,
)


def diagnose(block: WrongBlock) -> Diagnosis | None:
    """Return the first cause that explains at least 99 % of the squared error of a block, None if there is none."""
    if isinstance(block, Evidence):
        entries = entries_of(block)
        return None if entries is None else _first(entries, CAUSES)
    for search in (_in_sums, _in_excerpts):
        with suppress(GradverifyError):  # an evaluation failed
            if (found := search(block)) is not None:
                return found
    return None


def _first(compared: Compared, causes: Iterable[Callable[[Compared], Diagnosis | None]]) -> Diagnosis | None:
    """Return the first of the causes that explains the error.

    If a part of the error does not depend on the cotangent, the block is not linear in it, and only that is tried.
    """
    constant = vjp_of_zero(compared.block)
    is_affine = constant is not None and compared.shows_constant(constant)
    return first(cause(compared) for cause in ((missing_cotangent,) if is_affine else causes))


def _in_sums(block: LargeBlock) -> Diagnosis | None:
    """Return the first cause that agrees with all random sums over a block, None if none does."""
    projections = ask(block)
    return _first(projections, _IN_SUMS) if bool((projections.error_size > 0).any()) else None


def _in_excerpts(block: LargeBlock) -> Diagnosis | None:
    """Return the cause that all excerpts of a block have in common; None if they differ or there are none."""
    diagnoses: list[Diagnosis] = []
    for excerpt in excerpts(block, _COUNT, _CALLS * block.settings.max_evaluations):
        evidence = evidence_in(excerpt, block.of.name, block.wrt.name, block.settings)
        found = None if evidence is None else diagnose(evidence)
        if found is None or found.cause not in _ONLY_IN_EXCERPTS or (diagnoses and not _same(found, diagnoses[0])):
            return None
        diagnoses.append(found)
    if not diagnoses:
        return None
    scope = "in an excerpt of this block, and in another"
    return replace(
        diagnoses[0], explanation=f"{diagnoses[0].explanation} ({scope})", share=min(each.share for each in diagnoses)
    )


def _same(one: Diagnosis, other: Diagnosis) -> bool:
    """True if both give the same explanation, apart from counts of entries and the accuracy of numbers."""
    texts = [_COUNTS.sub("", each.explanation) for each in (one, other)]
    words, others = (_NUMBER.sub("#", text) for text in texts)
    numbers = (_NUMBER.findall(text) for text in texts)
    return (one.cause, words) == (other.cause, others) and all(map(_near, *numbers))


def _near(one: str, other: str) -> bool:
    """True if two numbers agree. Whole numbers must be equal: they may be indices."""
    return one == other or ("." in one + other and math.isclose(float(one), float(other), rel_tol=_NEAR))
