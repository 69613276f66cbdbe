"""The causes that random sums can tell, and the search for the first that explains an error."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.core.whole.evidence import Diagnosis
from gradverify.core.whole.sums import Asked, Sums, ask
from gradverify.diagnosis.sums.few import few_elements, few_entries
from gradverify.diagnosis.sums.look import Look, look
from gradverify.diagnosis.sums.order import permuted, shifted, transposed
from gradverify.diagnosis.sums.places import placed
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

_EVERYWHERE: tuple[Callable[[Asked], Diagnosis | None], ...] = (
    low_precision_backward,
    missing_conjugate,
    swapped_inputs,
    swapped_outputs,
    detached,
    factor,
)
_SOMEWHERE: tuple[Callable[[Look], Diagnosis | None], ...] = (
    missing_broadcast_sum,
    transposed,
    shifted,
    permuted,
    placed,
    missing_term,
    few_elements,
)


def diagnose_sums(sums: Sums) -> Diagnosis | None:
    """Return the first cause that all sums over the block agree with, None where none does."""
    try:
        asked = ask(sums)
        if not bool((asked.typical > 0).any()):
            return None
        forgotten = missing_cotangent(asked)
        if forgotten is not None or stays_without(asked):
            return forgotten
        found = next(filter(None, (cause(asked) for cause in _EVERYWHERE)), None)
        if found is not None:
            return found
        entries = few_entries(asked)
        if entries is not None and asked.sums.found.total == 1:
            return entries
        closer, causes = look(asked), _SOMEWHERE if entries is None else (placed,)
        return next(filter(None, (cause(closer) for cause in causes)), entries)
    except GradverifyError:  # what cannot be asked again gets no cause
        return None
