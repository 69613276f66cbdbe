"""The pair of Jacobians, claimed and measured, compared in every entry, by whichever way the size allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradverify.case import Settings
from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.comparison import Comparison, dense_entries, is_accepted
from gradverify.core.decide.context import MeasuredProblem, Reconsider, measure_problem
from gradverify.core.decide.tolerance import relative_tolerance
from gradverify.core.decide.verdict import Code
from gradverify.core.forward.precision import as_rounded, in_double
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.coordinates import Block
from gradverify.core.strategy.columnwise import affordable, compare_densely
from gradverify.core.strategy.random_sketch import UnnamedError, compare_by_probing
from gradverify.core.strategy.structured import compare_by_structure, compare_closely
from gradverify.core.whole.evidence import Evidence, Whole
from gradverify.errors import EvaluationError
from gradverify.result import Method

_MOST = 1_000_000  # entries that are gone through again where the forward may round its inputs
_UNITS = 4.0  # of rounding, that a backward may be off by where the forward rounds its inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigation:
    """A comparison, and what it was made from."""

    comparison: Comparison
    measured: MeasuredProblem
    method: Method

    @property
    def sampled(self) -> Sampler:
        """The forward around the point."""
        return self.measured.sampled

    @property
    def backward(self) -> Backward:
        """What backward claims."""
        return self.measured.backward


def investigate(steady: Repeatable, settings: Settings, reconsider: Reconsider) -> Investigation:
    """Compare every entry of the Jacobian; raises EvaluationError and UnnamedError.

    Where the Jacobian has a structure that stands every test, shared moves and cotangents do it; else one move per
    input coordinate and one vjp per output coordinate, and where those are too many, random sums over all entries.
    Entries in low precision are held against float64, sums of them are not: they would have to know of its rounding.
    What cannot be judged, or is accused, of a forward that rounds its inputs is judged for inputs that are rounded.
    """
    sampled = in_double(steady)
    if steady.problem.order > 1:
        return _investigated(steady, sampled, settings, reconsider)
    if sampled.sampled.coarse:  # which says nothing where that forward does not resolve more
        sampled = as_rounded(steady, sampled.sampled) or sampled
    found = _investigated(steady, sampled, settings, reconsider)
    return found if _stands(found) else _for_rounded_inputs(steady, found, settings, reconsider) or found


def _stands(found: Investigation) -> bool:
    """Tell whether nobody needs to ask what the forward rounds inputs to, or all is too large to go through again."""
    asked = found.method is Method.PROBED or found.sampled.rounds_to is not None
    return asked or is_accepted(found.comparison) or found.measured.entries > _MOST


def _for_rounded_inputs(
    steady: Repeatable, found: Investigation, settings: Settings, reconsider: Reconsider
) -> Investigation | None:
    """Compare every entry for inputs as the forward rounds them, None where it does not or nobody answers for these."""
    rounded = as_rounded(steady, found.sampled)
    if rounded is None:
        return None
    tolerances = replace(settings.tolerances, rtol=_relative(settings, found.sampled, rounded.sampled))
    try:
        return _investigated(rounded, rounded, replace(settings, tolerances=tolerances), reconsider)
    except (EvaluationError, UnnamedError):
        return None


def _relative(settings: Settings, given: Sampler, rounded: Sampler) -> float:
    """Return the relative tolerance for inputs that are rounded: as for those given, and what rounding may leave."""
    asked = relative_tolerance(settings.tolerances, given.dtypes)
    usual = relative_tolerance(settings.tolerances, rounded.dtypes)
    return max(asked, min(usual, _UNITS * rounded.eps))


def _investigated(steady: Repeatable, sampled: Repeatable, settings: Settings, reconsider: Reconsider) -> Investigation:
    """Compare every entry, by differences of the forward as it is `sampled`."""
    measured = measure_problem(sampled, settings)
    method, comparison = Method.STRUCTURED, compare_by_structure(measured, settings, reconsider)
    if comparison is None and affordable(measured):
        method, comparison = Method.DENSE, compare_densely(measured, settings, reconsider)
    elif comparison is None:
        measured = measure_problem(steady, settings) if measured.sampled.coarse else measured
        method, comparison = Method.PROBED, compare_by_probing(measured, settings, reconsider)
        closely = compare_closely(measured, settings, reconsider) if is_accepted(comparison) else None
        if closely is not None:
            method, comparison = Method.STRUCTURED, closely
    return Investigation(comparison=comparison, measured=measured, method=method)


def whole(found: Investigation) -> Whole | None:
    """Return all entries of the two Jacobians, None where they were too many to keep."""
    sampled = found.sampled
    known = dense_entries(found.comparison, sampled.point.numel(), sampled.value.numel())
    if known is None:
        return None
    return Whole(
        outputs=sampled.outputs,
        inputs=sampled.inputs,
        claimed=known.claimed.T,
        numeric=known.numeric.T,
        bar=known.bar.T,
        wrong=(known.code == Code.MISMATCH).T,
    )


def evidence(found: Investigation, everything: Whole, of: Block, wrt: Block) -> Evidence:
    """Return all there is to know of one block."""
    place = (of.coordinates, wrt.coordinates)
    return Evidence(
        of=of,
        wrt=wrt,
        claimed=everything.claimed[place],
        numeric=everything.numeric[place],
        bar=everything.bar[place],
        wrong=everything.wrong[place],
        backward=found.backward,
        whole=everything,
    )
