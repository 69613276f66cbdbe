"""Compare the analytic and the numeric Jacobian in every entry, by a method that suits their size."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from gradverify.arithmetic.unrounded import WIDE
from gradverify.case import Settings
from gradverify.core.backward.vjps import Backward, backward_of
from gradverify.core.decide.comparison import Comparison, is_accepted
from gradverify.core.decide.context import MeasuredProblem, Reconsider, measure_problem
from gradverify.core.forward.repeatable import Repeatable, in_double
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.tape import record
from gradverify.core.strategy.columnwise import (
    compare_by_structure,
    compare_densely,
    fits_dense_comparison,
)
from gradverify.core.strategy.elementwise import compare_elementwise
from gradverify.core.strategy.random_sketch import UnnamedError, compare_by_random_sums
from gradverify.core.strategy.random_sums import computes_in_float64
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


def investigate(repeatable: Repeatable, settings: Settings, reconsider: Reconsider) -> Investigation:
    """Compare every entry of the Jacobian; raises EvaluationError and UnnamedError.

    If the Jacobian has a structure that passes every test, columns share steps and rows share cotangents. Otherwise
    each input coordinate is moved alone, and each output coordinate takes a vjp; if that is too much, random sums over
    all entries are compared. Differences are those of the forward in float64 throughout, where that is possible.

    If there are casts to a lower precision than the inputs', the same backward without its casts is compared first, to
    the digits of the inputs: rounding in backward explains no error that it has there too. If both agree, the error
    bars and the detection limit are those without casts.
    """
    widened, uncast = in_double(repeatable), None
    if widened.sampled.only_casts_round:
        with suppress(EvaluationError):
            sampled, problem = widened.sampled, widened.sampled.problem
            is_finer = not sampled.dtypes <= WIDE
            sampled = replace(sampled, is_finer=is_finer, computed_eps=0.0, only_casts_round=False)
            without_casts = Repeatable(problem=problem, tape=record(problem), sampled=sampled)
            uncast = _compared(without_casts, without_casts, settings, reconsider)
    if uncast is not None and uncast.comparison.wrong:
        return uncast
    found = _compared(repeatable, widened, settings, reconsider)
    if uncast is None or not (is_accepted(uncast.comparison) and is_accepted(found.comparison)):
        return found
    comparison = replace(found.comparison, extremes=uncast.comparison.extremes)
    measured = replace(found.measured, backward_in_float64=uncast.backward)
    return replace(found, comparison=comparison, measured=measured)


def _compared(repeatable: Repeatable, widened: Repeatable, settings: Settings, reconsider: Reconsider) -> Investigation:
    measured = measure_problem(widened, settings, reconsider)
    method, comparison = Method.STRUCTURED, compare_elementwise(measured)
    if comparison is None:
        comparison = compare_by_structure(measured)
    if comparison is None and fits_dense_comparison(measured):
        method, comparison = Method.DENSE, compare_densely(measured)
    elif comparison is None:
        sums, comparison = _compared_by_sums(repeatable, measured, settings, reconsider)
        closely = compare_by_structure(measured, after_sums=True) if is_accepted(comparison) else None
        if closely is None:
            return Investigation(comparison=comparison, measured=sums, method=Method.PROBED)
        comparison = closely
    return Investigation(comparison=comparison, measured=measured, method=method)


def _compared_by_sums(
    repeatable: Repeatable, measured: MeasuredProblem, settings: Settings, reconsider: Reconsider
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
    narrow = measure_problem(repeatable, settings, reconsider)
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
