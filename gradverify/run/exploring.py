"""Search the inputs near those of a case for one at which its gradient is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from gradverify.case import Case, Exploring, Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem
from gradverify.diagnosis.diagnose import diagnose
from gradverify.exploration.harvest import seen_in
from gradverify.exploration.search import OnTry, explore
from gradverify.exploration.tools import Tools
from gradverify.result import CheckResult, Exploration
from gradverify.run.arguments import make_argument
from gradverify.run.build import build
from gradverify.run.run_checks import settings_of
from gradverify.run.signature import forward_parameters

_METHODS = ("forward", "setup_context", "backward")


def explored(case: Case, target: Any, reference: Any, request: Exploring, on_try: OnTry) -> Exploration:
    """Return what changing the inputs of a case finds; raises nothing of user code."""
    if case.surrogate is not None:
        why = "backward is the derivative of a surrogate, which is not that of forward"
        return Exploration(tries=0, budget=request.budget, message=why)
    tools = tools_of(target, reference)
    return explore(case, tools, seen_in(case, tools.functions), request, on_try)


def tools_of(target: Any, reference: Any) -> Tools:
    """Return the functions of the runner for one target."""
    return Tools(
        build=lambda case: build(case, target, reference),
        arguments=_arguments,
        check=_checked,
        diagnosed=lambda case, problem, name: _checked(case, problem, name, diagnosed=True),
        text=_text,
        functions=tuple(_functions_of(target)),
        defaults=_defaults(target),
    )


def _arguments(case: Case) -> Mapping[str, Any]:
    return {name: make_argument(name, given, case).value for name, given in case.inputs.items()}


def _checked(case: Case, problem: Problem, name: str, *, diagnosed: bool = False) -> CheckResult:
    settings = settings_of(case).get(name, Settings(seed=case.seed))
    settings = replace(settings, torch_gradcheck=TorchGradcheck.NEVER)
    return run_check(name, problem, settings, diagnose) if diagnosed else run_check(name, problem, settings)


def _functions_of(target: Any) -> Iterator[Callable[..., Any]]:
    """Yield the functions that the user wrote: of a class its methods, and those that they are made of."""
    owner = target if isinstance(target, type) else type(target) if isinstance(target, torch.nn.Module) else None
    if owner is not None:
        found = (inspect.getattr_static(owner, name, None) for name in _METHODS)
        yield from (getattr(each, "__func__", each) for each in found if each is not None)
    elif hasattr(target, "__self__") and isinstance(target.__self__, type):  # a bound `apply`
        yield from _functions_of(target.__self__)
    else:
        yield target


def _defaults(target: Any) -> dict[str, Any]:
    parameters = forward_parameters(target) or ()
    return {found.name: found.default for found in parameters if found.default is not inspect.Parameter.empty}


def _text(case: Case) -> tuple[str, str]:
    lines = [f"{name}: {given}" for name, given in case.inputs.items()]
    return "\n".join(lines), ""
