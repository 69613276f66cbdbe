"""Search the inputs near those of a case for one at which its gradient is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from gradverify.case import (
    INIT,
    Case,
    Expectation,
    ExploreRules,
    Exploring,
    Input,
    ListInput,
    Settings,
    SizeArgument,
    TensorInput,
    Tolerances,
    TorchGradcheck,
    Values,
)
from gradverify.checks.reference import check as reference
from gradverify.checks.registry import Check, guarded, run_check
from gradverify.core.model.problem import Problem
from gradverify.diagnosis.diagnose import diagnose
from gradverify.evidence import undiagnosed
from gradverify.exploration.search import OnTry, explore
from gradverify.exploration.tools import Tools
from gradverify.paths import shown_path
from gradverify.result import CheckResult, Exploration
from gradverify.run.arguments import make_argument
from gradverify.run.build import build
from gradverify.run.exercised import functions_under_test
from gradverify.run.run_checks import settings_of
from gradverify.run.signature import forward_parameters, parameters_of
from gradverify.run.warned_once import each_warning_once
from gradverify.spec.write import inputs_text, spec_text

_VANISHED = 1e-12  # atol if the case has none: of gradients that vanish, only rounding is left
_DOUBLE_RTOL = 1e-7  # rtol of references: as gradcheck's in float64
_NUMBERS = Check(name=reference.NAME, run=reference.compare)  # without the custom operators that forward calls


def explored(case: Case, target: Any, reference: Any, request: Exploring, on_try: OnTry) -> Exploration:
    """Return what changing the inputs of a case finds; raises nothing of user code but KeyboardInterrupt."""
    if case.surrogate is not None:
        why = "backward is the derivative of a surrogate, which is not that of forward"
        return Exploration(tries=0, budget=request.budget, message=why)
    with each_warning_once():
        found = explore(case, tools_of(case, target, reference), request, on_try)
    return replace(found, uncovered=tuple(replace(each, file=shown_path(each.file)) for each in found.uncovered))


def tools_of(case: Case, target: Any, reference: Any) -> Tools:
    """Return the functions of the runner for one target."""
    return Tools(
        build=lambda case: build(case, target, reference),
        arguments=_arguments,
        check=_checked,
        diagnosed=lambda case, problem, name: _checked(case, problem, name, diagnosed=True),
        text=_text,
        functions=_functions(case, target, reference),
        defaults=_defaults(target),
    )


def _functions(case: Case, target: Any, reference: Any) -> tuple[FunctionType, ...]:
    try:
        return tuple(functions_under_test(build(case, target, reference), target))
    except KeyboardInterrupt:
        raise
    except BaseException:  # the first try says so
        return ()


def _arguments(case: Case) -> Mapping[str, Any]:
    return {name: make_argument(name, given, case).value for name, given in case.inputs.items()}


def _checked(case: Case, problem: Problem, name: str, *, diagnosed: bool = False) -> CheckResult:
    settings = settings_of(case).get(name, Settings(seed=case.seed))
    settings = replace(settings, torch_gradcheck=TorchGradcheck.NEVER)
    tolerances = settings.tolerances
    if tolerances == Tolerances():
        tolerances = Tolerances(rtol=_DOUBLE_RTOL if name == reference.NAME else None, atol=_VANISHED)
    settings = replace(settings, tolerances=tolerances)
    how = diagnose if diagnosed else undiagnosed
    if name == reference.NAME:
        return guarded(_NUMBERS, problem, settings, how)
    return run_check(name, problem, settings, how)


def _defaults(target: Any) -> dict[str, Any]:
    """Return the defaults of forward's parameters, and of those of a module's constructor as `init.bias`."""
    found = _defaults_of(forward_parameters(target))
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        found |= {f"{INIT}{name}": value for name, value in _defaults_of(parameters_of(target)).items()}
    return found


def _defaults_of(parameters: Iterable[inspect.Parameter] | None) -> dict[str, Any]:
    return {each.name: each.default for each in parameters or () if each.default is not inspect.Parameter.empty}


def _text(case: Case) -> tuple[str, str]:
    """Return the inputs and the spec of a case in YAML; "" for what YAML has no word for."""
    plain = replace(case, explore=ExploreRules(), exploring=None, expect=Expectation())
    folder = case.exploring.folder if case.exploring else ""
    try:
        return inputs_text(_without_names(plain)), spec_text(plain, folder=Path(folder) if folder else None)
    except ValueError:
        return "", ""


def _without_names(case: Case) -> Case:
    """Return the case without names of sizes, for a text that does not say what they stand for."""
    return replace(case, inputs={name: _without_sizes(given) for name, given in case.inputs.items()})


def _without_sizes(given: Input) -> Input:
    if isinstance(given, SizeArgument):
        return replace(given, sizes=None)
    if isinstance(given, ListInput):
        return replace(given, items=tuple(map(_without_sizes, given.items)))
    if not isinstance(given, TensorInput) or given.sizes is None:
        return given
    tells_shape = isinstance(given.origin, Values) and 0 not in (given.shape or ())
    return replace(given, sizes=None, shape=None if tells_shape else given.shape)
