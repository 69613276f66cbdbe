"""What a case's inputs do not exercise of the function's code. No verdict depends on it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.core.model.generators import own_seed, seed_everywhere
from gradverify.core.model.problem import Meter, Problem
from gradverify.core.model.tape import record, vjp
from gradverify.deadline import OutOfTime, is_late
from gradverify.errors import USER_ERRORS
from gradverify.exploration.exercised.functions import functions_of, functions_together
from gradverify.exploration.exercised.uncovered import may_be_uncovered, uncovered
from gradverify.exploration.exercised.watch import watch
from gradverify.paths import shown_path
from gradverify.result import Uncovered


def not_exercised(problem: Problem, target: Any, seed: int) -> tuple[Uncovered, ...]:
    """Return what one forward and backward at the problem's inputs leaves untouched of the target's code.

    `target` is the user's Function, callable or module. Nothing is returned if user code raises, or past half of the
    time limit. Seeds all generators.
    """
    if not problem.primals or is_late(problem.deadline):
        return ()
    uncounted = replace(problem, meter=Meter())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of user code have been given during the checks
            return _not_exercised(uncounted, target, seed)
    except OutOfTime:
        return ()
    except USER_ERRORS:
        return ()


def _not_exercised(problem: Problem, target: Any, seed: int) -> tuple[Uncovered, ...]:
    seed_everywhere(own_seed(seed))
    functions = functions_under_test(problem, target)
    if not functions or not may_be_uncovered(functions):
        return ()
    seed_everywhere(own_seed(seed))
    _, watched = watch(lambda: _forward_and_backward(problem, seed), functions)
    return tuple(replace(entry, file=shown_path(entry.file)) for entry in uncovered(watched, functions))


def functions_under_test(problem: Problem, target: Any) -> Sequence[FunctionType]:
    """Return the functions of the target; if it is no Function, also those of the Functions in its graph.

    Raises EvaluationError if forward does.
    """
    own = functions_of(target)
    if any(function.__name__ in ("backward", "vjp") for function in own):
        return own
    classes = dict.fromkeys(class_of(node) for node in custom_nodes(record(problem)))
    return tuple(dict.fromkeys((*own, *functions_together(classes))))


def _forward_and_backward(problem: Problem, seed: int) -> None:
    tape = record(problem)
    generator = torch.Generator().manual_seed(seed)
    cotangents = [_normal_like(output.tensor, generator) for output in tape.outputs]
    with torch.no_grad():
        vjp(problem, tape, cotangents)


def _normal_like(output: Tensor, generator: torch.Generator) -> Tensor:
    """Return normal random numbers: cotangents of both signs."""
    values = torch.randn(output.shape, generator=generator, dtype=output.dtype, device="cpu")
    return values.to(output.device)
