"""The causes that random projections can test, and the search for the first that explains an error."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.diagnosis.projections.sums import RandomProjections, ask
from gradverify.diagnosis.sums.few import few_elements, few_entries, one_element
from gradverify.diagnosis.sums.order import permuted, shifted, transposed
from gradverify.diagnosis.sums.places import confined_to_places
from gradverify.diagnosis.sums.sampled_lines import SampledLines, sampled_lines
from gradverify.diagnosis.sums.slices import missing_broadcast_sum
from gradverify.diagnosis.sums.term import missing_term
from gradverify.diagnosis.sums.whole import (
    detached,
    factor,
    low_precision_backward,
    missing_conjugate,
    missing_cotangent,
    stays_without,
    swapped_inputs,
    swapped_outputs,
)
from gradverify.errors import GradverifyError
from gradverify.evidence import Diagnosis, LargeBlock

_EVERYWHERE: tuple[Callable[[RandomProjections], Diagnosis | None], ...] = (
    one_element,
    low_precision_backward,
    missing_conjugate,
    swapped_inputs,
    swapped_outputs,
    detached,
    factor,
)
_BY_SAMPLE: tuple[Callable[[SampledLines], Diagnosis | None], ...] = (
    missing_broadcast_sum,
    transposed,
    shifted,
    permuted,
    confined_to_places,
    missing_term,
    few_elements,
)


def diagnose_sums(sums: LargeBlock) -> Diagnosis | None:
    """Return the first cause that agrees with all projections of the block, None if none does or an evaluation fails.

    An error in a single element is tested first, then patterns of all entries, then those that a sample of columns and
    rows suggests.
    """
    try:
        projections = ask(sums)
        if not bool((projections.error_size > 0).any()):
            return None
        without_cotangent = missing_cotangent(projections)
        if without_cotangent is not None or stays_without(projections):
            return without_cotangent
        found = next(filter(None, (cause(projections) for cause in _EVERYWHERE)), None)
        if found is not None:
            return found
        entries = few_entries(projections)
        if entries is not None and projections.block.wrong_entries.total == 1:
            return entries
        sample, causes = sampled_lines(projections), _BY_SAMPLE if entries is None else (confined_to_places,)
        return next(filter(None, (cause(sample) for cause in causes)), entries)
    except GradverifyError:  # an evaluation failed
        return None
