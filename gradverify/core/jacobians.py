"""Compare the analytic and the numeric Jacobian in every entry, by a method that suits their size."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradverify.case import Settings
from gradverify.core.backward.vjps import Backward, backward_of
from gradverify.core.decide.compare import relative_tolerance
from gradverify.core.decide.comparison import KEPT, Comparison, is_accepted
from gradverify.core.decide.context import MeasuredProblem, Reconsider, measure_problem
from gradverify.core.forward.repeatable import Repeatable, as_rounded, in_double
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.tape import record
from gradverify.core.strategy.columnwise import (
    compare_after_sums,
    compare_by_structure,
    compare_densely,
    fits_dense_comparison,
)
from gradverify.core.strategy.elementwise import compare_elementwise
from gradverify.core.strategy.random_sketch import UnnamedError, compare_by_random_sums
from gradverify.core.strategy.random_sums import computes_in_float64
from gradverify.core.tuning import RESULT_UNITS
from gradverify.deadline import OutOfTime
from gradverify.errors import EvaluationError
from gradverify.result import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigation:
    """A comparison of two Jacobians and the data it was made from."""

    comparison: Comparison
    measured: MeasuredProblem
    method: Method

    @property
    def sampled(self) -> Sampler:
        """Sampler of the forward around the point."""
        return self.measured.sampled

    @property
    def backward(self) -> Backward:
        """Backward, which gives the analytic Jacobian."""
        return self.measured.backward


def investigate(steady: Repeatable, settings: Settings, reconsider: Reconsider) -> Investigation:
    """Compare every entry of the Jacobian; raises EvaluationError and UnnamedError.

    If the Jacobian has a structure that passes every test, columns share steps and rows share cotangents. Otherwise
    each input coordinate is moved alone, and each output coordinate takes a vjp; if that is too much, random sums over
    all entries are compared. In low precision both are compared with float64 differences. If entries are not accepted
    and the forward rounds its inputs, the comparison is repeated at rounded inputs.
    """
    sampled = in_double(steady)
    if steady.problem.order > 1:
        return _compared(steady, sampled, settings, reconsider)
    if sampled.sampled.backward_eps:  # useless if the forward rounds its inputs even so
        sampled = as_rounded(steady, sampled.sampled) or sampled
    found = _compared(steady, sampled, settings, reconsider)
    try:
        return found if _is_final(found) else _at_rounded_inputs(steady, found, settings, reconsider) or found
    except OutOfTime:
        if found.sampled.rounding_eps():
            raise
        return found


def _is_final(found: Investigation) -> bool:
    """Return True if the comparison need not be repeated at rounded inputs, or is too large for it."""
    is_settled = found.method is Method.PROBED or found.sampled.rounds_to is not None
    return is_settled or is_accepted(found.comparison) or found.measured.entries > KEPT


def _at_rounded_inputs(
    steady: Repeatable, found: Investigation, settings: Settings, reconsider: Reconsider
) -> Investigation | None:
    """Repeat the comparison at rounded inputs; None if the forward does not round them or the comparison raises."""
    rounded = as_rounded(steady, found.sampled)
    if rounded is None:
        return None
    tolerances = replace(settings.tolerances, rtol=_rtol_at_rounded_inputs(settings, found.sampled, rounded.sampled))
    try:
        return _compared(rounded, rounded, replace(settings, tolerances=tolerances), reconsider)
    except (EvaluationError, UnnamedError):
        return None


def _rtol_at_rounded_inputs(settings: Settings, given: Sampler, rounded: Sampler) -> float:
    """Return rtol at rounded inputs: 4 eps, but at most rtol of their dtypes and at least rtol of the given dtypes."""
    given_rtol = relative_tolerance(settings.tolerances, given.dtypes)
    rounded_rtol = relative_tolerance(settings.tolerances, rounded.dtypes)
    return max(given_rtol, min(rounded_rtol, RESULT_UNITS * rounded.eps))


def _compared(steady: Repeatable, sampled: Repeatable, settings: Settings, reconsider: Reconsider) -> Investigation:
    """Compare every entry, with differences of the forward in `sampled`."""
    measured = measure_problem(sampled, settings, reconsider)
    method, comparison = Method.STRUCTURED, compare_elementwise(measured)
    if comparison is None:
        comparison = compare_by_structure(measured)
    if comparison is None and fits_dense_comparison(measured):
        method, comparison = Method.DENSE, compare_densely(measured)
    elif comparison is None:
        sums, comparison = _compared_by_sums(steady, measured, settings, reconsider)
        closely = compare_after_sums(measured) if is_accepted(comparison) else None
        if closely is None:
            return Investigation(comparison=comparison, measured=sums, method=Method.PROBED)
        comparison = closely
    return Investigation(comparison=comparison, measured=measured, method=method)


def _compared_by_sums(
    steady: Repeatable, measured: MeasuredProblem, settings: Settings, reconsider: Reconsider
) -> tuple[MeasuredProblem, Comparison]:
    """Compare random sums, and return the problem that they were taken from.

    In low precision the same backward in float64 takes part. If there is none, or if the sums differ by no more than
    backward may round inside and no entry is found to be wrong, they are compared in forward's own precision.
    """
    if not measured.sampled.backward_eps:
        return measured, compare_by_random_sums(measured, measured)
    both = _with_backward_in_float64(measured)
    if both is not None:
        try:
            return both, compare_by_random_sums(both, measured)
        except UnnamedError as error:
            if not error.may_be_rounding:
                raise
    narrow = measure_problem(steady, settings, reconsider)
    return narrow, compare_by_random_sums(narrow, measured)


def _with_backward_in_float64(measured: MeasuredProblem) -> MeasuredProblem | None:
    """Return the problem with the same backward in float64 too; None if that raises, or rounds to fewer digits."""
    problem = measured.sampled.problem
    try:
        wide = backward_of(problem, record(problem), measured.settings.seed)
        is_exact = computes_in_float64(wide)
    except EvaluationError:
        return None
    return replace(measured, backward_in_float64=wide) if is_exact else None
