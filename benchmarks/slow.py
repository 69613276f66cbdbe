"""Cost of gradcheck and gradgradcheck on Functions with slow forwards, ours beside torch's, in one run.

    python -m benchmarks.slow [-k TEXT] [--stages] [--json FILE]

The Functions are solvers, integrators, recursions and iterations as in public packages, each of them right, wrong in
one entry, wrong throughout, and approximate. torch's checks run before and after ours, and the mean of the two times
counts. A check ends after a minute. Prints a line per Function and variant: the verdicts of both checks, their times,
forwards and backwards; then the ratios beside the goals for them. `--stages` prints instead which part of the engine
called our forwards.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.plain_table import table
from benchmarks.record import Row, Standing, Total, judged_row, standing_of_right
from benchmarks.slow_costs import Cost, our_cost, torch_cost
from benchmarks.slow_stages import stage_table
from benchmarks.slow_subject import Slow, Variant
from benchmarks.slow_subjects import SUBJECTS
from gradverify.result import Verdict

COMPARED_CHECKS = ("gradcheck", "gradgradcheck")
AGAINST = "torch's gradcheck and gradgradcheck"
_HEADER = (
    f"{'function':40}{'ours':>16}{'torch':>12}{'ours ms':>10}{'torch ms':>10}{'ratio':>8}"
    f"{'forwards':>12}{'backwards':>12}"
)
_SHORT = {Verdict.INCONCLUSIVE: "open"}  # as printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The costs of one variant of one Function, in the order of COMPARED_CHECKS."""

    name: str
    variant: Variant
    ours: tuple[Cost, ...]
    theirs: tuple[Cost, ...]  # with the mean of two times

    @property
    def key(self) -> str:
        """Name of the row."""
        return f"{self.name}, {self.variant}"

    @property
    def ratio(self) -> float:
        """Our time over torch's."""
        return _seconds(self.ours) / _seconds(self.theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the summary, and its goal."""

    name: str
    value: float
    goal: float


def main() -> None:
    """Measure the Functions that the command line selects, and print a line for each and the summary."""
    options = _options()
    chosen = [(slow, variant) for slow in SUBJECTS for variant in Variant if options.k in f"{slow.name}, {variant}"]
    if not chosen:
        sys.exit(f"no row has {options.k!r} in it; rows are called like 'kepler, right' and 'soft-DTW, one entry'")
    if options.stages:
        print(*(stage_table(chosen, check) for check in COMPARED_CHECKS), sep="\n\n")
        return
    print(_HEADER)
    found = []
    for slow, variant in chosen:
        found.append(measured(slow, variant))
        print(_line(found[-1]), flush=True)
    figures = list(summary(found))
    print("", table(("ours over torch's", "value", "goal", ""), map(_summary_line, figures)), sep="\n")
    save("slow", options, map(row_of, found), [Total(name=each.name, value=each.value) for each in figures])


def measured(slow: Slow, variant: Variant) -> Measured:
    """Run both checks, ours between two runs of torch's."""
    ours, theirs = [], []
    for check in COMPARED_CHECKS:
        before, own, after = (
            cost(check, slow.functions[variant], slow.variants[variant]) for cost in (torch_cost, our_cost, torch_cost)
        )
        ours.append(own)
        theirs.append(replace(before, seconds=(before.seconds + after.seconds) / 2))
    return Measured(name=slow.name, variant=variant, ours=tuple(ours), theirs=tuple(theirs))


def summary(found: Sequence[Measured]) -> Iterator[Figure]:
    """Yield the figures that can be computed from these rows."""
    if not found:
        return
    ours, theirs = [cost for each in found for cost in each.ours], [cost for each in found for cost in each.theirs]
    yield Figure(name="wall time, in sum", value=_seconds(ours) / _seconds(theirs), goal=2.0)
    yield Figure(name="forwards, in sum", value=_forwards(ours) / _forwards(theirs), goal=1.5)
    yield Figure(name="wall time, median", value=statistics.median(each.ratio for each in found), goal=1.5)
    for variant in Variant:
        ratios = [each.ratio for each in found if each.variant is variant]
        yield from _middle_and_most(f"wall time, {variant}", ratios, 1.5)[:1]
    yield from _middle_and_most("ours, wrong or approximate over its right twin", list(_over_right_twins(found)), 2.0)
    yield from _middle_and_most("wall time, order 2", list(_at_order_2(found)), 3.0)


def row_of(found: Measured) -> Row:
    """Return the row of gradcheck's result; its standing counts gradgradcheck's if the Function is right."""
    first, second = found.ours
    assert first.result is not None
    return replace(
        judged_row(found.key, first.result, _standing(found)),
        cost=found.ratio,
        against=AGAINST,
        forward=first.forward + second.forward,
        backward=first.backward + second.backward,
    )


def _standing(found: Measured) -> Standing:
    """Return the worse standing of both checks of a right Function, that of gradcheck for a wrong one."""
    if found.variant is Variant.RIGHT:
        return max((standing_of_right(cost.verdict) for cost in found.ours), key=tuple(Standing).index)
    wrong = {Verdict.FAIL: Standing.RIGHT, Verdict.INCONCLUSIVE: Standing.INCONCLUSIVE, Verdict.ERROR: Standing.ERROR}
    return wrong.get(found.ours[0].verdict, Standing.MISSED)


def _middle_and_most(name: str, ratios: Sequence[float], goal: float) -> list[Figure]:
    """Return the median and the largest of the ratios as figures, none if there are no ratios."""
    if not ratios:
        return []
    values = {"median": statistics.median(ratios), "most": max(ratios)}
    return [Figure(name=f"{name}, {which}", value=value, goal=goal) for which, value in values.items()]


def _over_right_twins(found: Sequence[Measured]) -> Iterator[float]:
    """Yield our time for each wrong or approximate Function over that for its right twin."""
    right = {each.name: _seconds(each.ours) for each in found if each.variant is Variant.RIGHT}
    for each in found:
        if each.variant is not Variant.RIGHT and each.name in right:
            yield _seconds(each.ours) / right[each.name]


def _at_order_2(found: Sequence[Measured]) -> Iterator[float]:
    """Yield the ratio of the times of gradgradcheck where backward has a derivative of its own."""
    for each in found:
        if each.ours[1].verdict is not Verdict.SKIP:
            yield each.ours[1].seconds / each.theirs[1].seconds


def _seconds(costs: Sequence[Cost]) -> float:
    return sum(cost.seconds for cost in costs)


def _forwards(costs: Sequence[Cost]) -> int:
    return sum(cost.forward for cost in costs)


def _line(found: Measured) -> str:
    ours, theirs = (
        "+".join(_SHORT.get(cost.verdict, cost.verdict) for cost in side) for side in (found.ours, found.theirs)
    )
    mark = "" if _standing(found) is Standing.RIGHT else "! "
    forwards = f"{_forwards(found.ours)}/{_forwards(found.theirs)}"
    backwards = f"{sum(cost.backward for cost in found.ours)}/{sum(cost.backward for cost in found.theirs)}"
    return (
        f"{found.key:40}{mark + ours:>16}{theirs:>12}{1e3 * _seconds(found.ours):10.0f}"
        f"{1e3 * _seconds(found.theirs):10.0f}{found.ratio:8.1f}{forwards:>12}{backwards:>12}"
    )


def _summary_line(figure: Figure) -> tuple[object, ...]:
    return figure.name, f"{figure.value:.1f}", f"≤ {figure.goal:g}", "met" if figure.value <= figure.goal else "not met"


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("-k", default="", metavar="TEXT", help="only rows whose name or variant has TEXT in it")
    parser.add_argument(
        "--stages", action="store_true", help="count our forwards by the part of the engine that calls them"
    )
    return parsed_options(parser)


if __name__ == "__main__":
    main()
