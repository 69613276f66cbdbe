"""Mechanisms of the numeric engine that can be switched off from outside.

Each is one function of `gradverify.core`. To switch it off, a function of the same signature replaces it wherever it is
imported. The replacement excuses nothing, measures no noise, or leaves every entry to the next look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from typing import Any

import torch

from gradverify.core.decide import screen
from gradverify.core.decide.columns import EXCUSES
from gradverify.core.decide.screen import Screened

Function = Callable[..., Any]
Replacement = Callable[[Function], Function]  # from a function to its replacement


class Group(StrEnum):
    """Kinds of mechanism."""

    EXCUSE = "excuse"  # may withdraw a mismatch before it is reported
    NOISE = "noise"  # part of the error estimate of the forward
    LOOK = "look"  # judges entries before the most thorough look
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One function and its replacement when it is off."""

    name: str
    group: Group
    module: str  # module of the function, below gradverify.core
    function: str
    replacement: Function


def _nothing_like(place: int) -> Function:
    """Return a function that returns zeros like its positional argument `place`."""
    return lambda *arguments: torch.zeros_like(arguments[place])


def _argument(place: int) -> Function:
    """Return a function that returns its positional argument `place`."""
    return lambda *arguments: arguments[place]


def _nothing(*arguments: Any, **options: Any) -> None:
    """Accept any arguments and return None."""


def _no_rounding_on_the_way(sampled: Any, *measured: Any) -> Any:
    return torch.zeros_like(sampled.value)


def _no_rounding(sampled: Any, samples: Any, own: Any) -> Any:
    return torch.zeros_like(samples.plus)


def _no_height(sampled: Any, samples: Any, *replacements: Any) -> Any:
    return torch.zeros_like(samples.plus[:, 0])


def _no_claim_agrees(samples: Any, claimed: Any, height: Any) -> Any:
    return torch.zeros_like(claimed, dtype=torch.bool)


def _no_slight_kink(smooth: Any, left: Any, right: Any) -> Any:
    return torch.zeros_like(smooth.value, dtype=torch.bool)


def _no_row_unseen(sampled: Any, noise: Any, samples: Any, claimed: Any, numeric: Any) -> Any:
    return torch.zeros_like(claimed, dtype=torch.bool)


def _all_in_doubt(*arguments: Any) -> Screened:
    found = _SCREENED(*arguments)
    return replace(found, doubt=torch.ones_like(found.doubt))


def _excuse(function: Function) -> Mechanism:
    return Mechanism(
        name=function.__name__.removeprefix("excuse_"),
        group=Group.EXCUSE,
        module=function.__module__.removeprefix("gradverify.core."),
        function=function.__name__,
        replacement=_argument(2),
    )


def _part(name: str, home: str, function: str, off: Function) -> Mechanism:
    return Mechanism(name=name, group=Group.EXCUSE, module=f"decide.{home}", function=function, replacement=off)


def _noise(name: str, home: str, function: str, off: Function) -> Mechanism:
    return Mechanism(name=name, group=Group.NOISE, module=home, function=function, replacement=off)


def _look(name: str, home: str, function: str, off: Function) -> Mechanism:
    return Mechanism(name=name, group=Group.LOOK, module=home, function=function, replacement=off)


def _other(name: str, home: str, function: str, off: Function) -> Mechanism:
    return Mechanism(name=name, group=Group.OTHER, module=home, function=function, replacement=off)


_SCREENED = screen.screened  # kept, since `_all_in_doubt` replaces it

MECHANISMS: tuple[Mechanism, ...] = (
    *map(_excuse, EXCUSES),
    _part("low precision", "backward_rounding", "_excuse_in_low_precision", _argument(2)),
    _part("rounding of backward", "backward_rounding", "_excuse_in_float64", _argument(2)),
    _part("constant stairs", "stairs", "_agrees_up_to_stairs", _no_claim_agrees),
    _noise("differences of samples", "forward.noise", "noise_in", lambda samples: torch.zeros_like(samples[0])),
    _noise("pooled", "forward.noise", "pooled", _argument(1)),
    _noise("rounding of outputs", "forward.noise", "rounding_of", _nothing_like(1)),
    _noise("lasting stairs", "forward.step_noise", "with_stairs", _argument(0)),
    _noise("rounding of inputs", "estimate.samples", "input_rounding_noise", _no_rounding),
    _noise("scatter of the ladder", "estimate.nonsmooth", "_scatter", lambda samples: torch.zeros_like(samples.plus)),
    _noise("stair", "estimate.smoothness", "stair_height", lambda samples: torch.zeros_like(samples.plus[:, 0])),
    _noise("cancellation", "estimate.nonsmooth", "_cancelled", _no_height),
    _noise("rounding jump", "estimate.smoothness", "rounding_jump", _no_height),
    _noise("rounding inside", "estimate.smoothness", "_intermediate_rounding", _no_rounding),
    _noise("rounding on the way", "forward.step_noise", "rounding_on_the_way", _no_rounding_on_the_way),
    _noise("unresolved slope", "decide.ladder", "_is_too_steep_to_refute", _no_row_unseen),
    _noise("drift", "estimate.tableau", "_drift", lambda difference, *replacements: torch.zeros_like(difference[:, 0])),
    _noise("float64 forward", "forward.repeatable", "in_double", _argument(0)),
    _look("elementwise", "strategy.elementwise", "compare_elementwise", _nothing),
    _look("all matching", "strategy.elementwise", "_all_matching", _nothing),
    _look("smaller steps", "strategy.elementwise", "_judged_by_smaller_steps", _argument(3)),
    _look("first look", "decide.screen", "screened", _all_in_doubt),
    _look("single steps", "strategy.single_step", "sample_single_steps", _nothing),
    _other("propagated nan", "decide.columns", "_with_propagated_nan", _argument(2)),
    _other("finer steps", "decide.ladder", "_by_finer_steps", _argument(4)),
    _other("constant between jumps", "decide.ladder", "_accept_zero", _argument(3)),
    _other("slight kink", "estimate.nonsmooth", "_may_be_slight_kink", _no_slight_kink),
    _other("rows at a tie", "decide.subgradients", "_suspects", lambda near, kinked, generator: iter(())),
)  # fmt: skip


@contextmanager
def switched_off(mechanism: Mechanism) -> Iterator[None]:
    """Replace the mechanism's function by `off` wherever gradverify has imported it."""
    with _replacements((mechanism,), lambda each: each.replacement):
        yield


@contextmanager
def calls_noted(mechanisms: Sequence[Mechanism], asked: set[str]) -> Iterator[None]:
    """Add the names of the mechanisms that are called to `asked`."""

    def recorder(mechanism: Mechanism) -> Function:
        function = _function(mechanism)

        def called(*arguments: Any, **named: Any) -> Any:
            asked.add(mechanism.name)
            return function(*arguments, **named)

        return called

    with _replacements(mechanisms, recorder):
        yield


@contextmanager
def _replacements(mechanisms: Sequence[Mechanism], other: Callable[[Mechanism], Function]) -> Iterator[None]:
    """Replace each mechanism's function in every module of gradverify and in the modules' tuples of functions."""
    replacements = {_function(mechanism): other(mechanism) for mechanism in mechanisms}
    changed: list[tuple[Any, str, object]] = []
    for module in [module for name, module in sys.modules.items() if name.startswith("gradverify.")]:
        for name, value in list(vars(module).items()):
            found = _replaced(value, replacements)
            if found is not value:
                changed.append((module, name, value))
                setattr(module, name, found)
    try:
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)


def _replaced(value: object, replacements: dict[Function, Function]) -> object:
    if isinstance(value, tuple) and any(callable(each) and each in replacements for each in value):
        return tuple(replacements.get(each, each) for each in value)
    return replacements.get(value, value) if callable(value) and _is_hashable(value) else value


def _is_hashable(value: object) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def _function(mechanism: Mechanism) -> Function:
    found: Function = getattr(import_module(f"gradverify.core.{mechanism.module}"), mechanism.function)
    return found
