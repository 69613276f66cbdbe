"""What the search needs from the runner: how a case becomes a problem, and how a problem is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from gradverify.case import Case
from gradverify.core.model.problem import Problem
from gradverify.result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Functions of the runner, for one target."""

    build: Callable[[Case], Problem]  # raises what user code and InputError raise
    arguments: Callable[[Case], Mapping[str, Any]]  # values of the inputs, by name
    check: Callable[[Case, Problem, str], CheckResult]  # the named check, with the settings of the case
    diagnosed: Callable[[Case, Problem, str], CheckResult]  # the same, with causes
    text: Callable[[Case], tuple[str, str]]  # inputs and spec of a case in YAML; "" where YAML has no word for an input
    functions: tuple[FunctionType, ...] = ()  # the user's own: their constants are read, their lines watched
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of parameters that the case does not set
