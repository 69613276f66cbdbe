"""Pictures of one derivative: its ladder of steps, a kink, and a forward that is quantised.

The samples, the noise and the estimates are those of the engine: `classify_ladder` at one input and one output.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.nonsmooth import LadderResult, classify_ladder
from gradverify.core.estimate.samples import Samples, difference_noise, joined
from gradverify.core.estimate.smoothness import stair_height
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, fine_steps
from gradverify.core.forward.noise import measure
from gradverify.core.forward.sampler import Sampler, sampler
from gradverify.core.model.magnitudes import scales
from gradverify.core.model.problem import bind
from gradverify.core.model.tape import record

OURS, OTHER, GREY = "#0072b2", "#d55e00", "#777777"  # distinguishable with colour blindness
_STYLE = {"svg.hashsalt": "gradverify", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """A ladder at one point, and what the engine made of it; K steps, coarse to fine."""

    sampled: Sampler
    samples: Samples
    result: LadderResult
    steps: Tensor  # (K,)
    differences: Tensor  # (K,) central
    noise: Tensor  # (K,) bounds of the noise of the differences

    @property
    def value(self) -> float:
        """The derivative."""
        return float(self.result.estimate.value)

    @property
    def bar(self) -> float:
        """Its error bar."""
        return float(self.result.estimate.bar)


def climb(function: Callable[[Tensor], Tensor], x: float) -> Climbed:
    """Sample `function` at x by all steps of the ladder, and classify it."""
    problem = bind(function, [torch.tensor([x], dtype=torch.float64, requires_grad=True)], names=["x"])
    sampled = sampler(problem, record(problem))
    lengths, groups, chosen = (
        scales(sampled.point, sampled.inputs),
        single_columns(1, 1, sampled.point.device),
        torch.tensor([0]),
    )
    noise = measure(sampled, lengths, 0)
    coarse = sample(sampled, groups, chosen, coarse_steps(lengths))
    samples = joined(coarse, sample(sampled, groups, chosen, fine_steps(lengths, chosen)))
    result = classify_ladder(sampled, noise, samples, lengths.own[chosen].unsqueeze(1), stair_height(samples))
    level = difference_noise(noise, samples)
    return Climbed(
        sampled=sampled,
        samples=samples,
        result=result,
        steps=samples.forth.flatten(),
        differences=samples.difference.flatten(),
        noise=level.flatten(),
    )


def ladder() -> str:
    """Errors of central differences of exp(sin 3x) at 1 over the step, and the estimate with its bar."""
    found, exact = climb(lambda x: torch.exp(torch.sin(3 * x)), 1.0), 3 * math.cos(3) * math.exp(math.sin(3))
    figure, (axes,) = _figure("exp(sin 3x) at x = 1", "step h", "error of the derivative")
    axes.loglog(found.steps, (found.differences - exact).abs(), "o-", color=GREY, label="central difference at h")
    axes.loglog(found.steps, found.noise, ":", color=OTHER, label="bound of its noise, 1.5·η/h")
    axes.axhline(found.bar, color=OURS, label="error bar of the estimate")
    axes.axhline(max(abs(found.value - exact), 1e-17), color=OURS, linestyle="--", label="error of the estimate")
    axes.set_ylim(1e-18, 1e2)  # the error is 0 with the rounding of some processors: the axis stays as it is
    return _svg(figure, axes)


def kink() -> str:
    """One-sided quotients of |x - 1.001| over the step, at the kink and beside it, with what is accepted."""
    figure, (at, beside) = _figure("", "step h", "slope", panels=2)
    for axes, x, title in ((at, 1.001, "|x − 1.001| at its kink"), (beside, 1.0, "|x − 1.001| at x = 1, beside it")):
        found = climb(lambda t: (t - 1.001).abs(), x)
        left, right = (quotient.flatten() for quotient in found.samples.quotients)
        axes.semilogx(found.steps, right, "o-", color=OTHER, markersize=3, label="(f(x + h) − f(x)) / h")
        axes.semilogx(found.steps, left, "s-", color=GREY, markersize=3, label="(f(x) − f(x − h)) / h")
        low, high = float(found.result.low), float(found.result.high)
        says = f"{low:.3g} to {high:.3g}" if found.result.kink.item() else f"{found.value:.3g} ± {found.bar:.0e}"
        axes.axhspan(low - 0.02, high + 0.02, color=OURS, alpha=0.2, label=f"accepted: {says}")
        axes.set(title=title, ylim=(-1.3, 1.3))
    return _svg(figure, at, beside)


def quantised() -> str:
    """Differences of a sine that is rounded to bfloat16 inside, with the noise that the height of its stair makes."""
    found, exact = climb(lambda x: torch.sin(x).bfloat16().double(), 0.7), math.cos(0.7)
    stair = stair_height(found.samples).clamp(min=float(found.result.scatter.max()))
    figure, (axes,) = _figure(
        "sin x, rounded to bfloat16, at x = 0.7", "step h", "difference (f(x + h) − f(x − h)) / 2h"
    )
    reach = (1.5 * stair.flatten() / found.steps).numpy()
    axes.fill_between(
        found.steps, exact - reach, exact + reach, color=OTHER, alpha=0.2, label="noise of the stair, 1.5·height/h"
    )
    axes.semilogx(found.steps, found.differences, "o-", color=GREY, label="central difference at h")
    axes.axhline(exact, color="black", linewidth=0.8, label="cos 0.7")
    axes.axhspan(
        found.value - found.bar,
        found.value + found.bar,
        color=OURS,
        alpha=0.3,
        label=f"estimate: {found.value:.3f} ± {found.bar:.3f}",
    )
    axes.set_ylim(exact - 1.5, exact + 1.5)
    return _svg(figure, axes)


PICTURES: dict[str, Callable[[], str]] = {"ladder.svg": ladder, "kink.svg": kink, "quantised.svg": quantised}


def _figure(title: str, across: str, up: str, panels: int = 1) -> tuple[Figure, list[Axes]]:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        drawn = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for axes in drawn:
        axes.set(title=title, xlabel=across, ylabel=up)
    return figure, drawn


def _svg(figure: Figure, *drawn: Axes) -> str:
    """Return the figure with legends, without a date, so that the same picture has the same bytes."""
    for axes in drawn:
        axes.legend(frameon=False, fontsize=8)
    written = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(written, format="svg", metadata={"Date": None}, facecolor="white")
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"
