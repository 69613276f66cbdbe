"""What a case's inputs do not exercise of the function's code. No verdict depends on it."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.nodes import Exchange, class_of, custom_nodes, recorded_exchanges
from gradverify.core.model.generators import own_seed, seed_everywhere
from gradverify.core.model.problem import Meter, Problem
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.deadline import OutOfTime, is_late
from gradverify.errors import USER_ERRORS
from gradverify.exploration.exercised.functions import functions_of, functions_together
from gradverify.exploration.exercised.uncovered import may_be_uncovered, uncovered
from gradverify.exploration.exercised.watch import watch
from gradverify.interception import intercepted_apply
from gradverify.paths import shown_path
from gradverify.result import Side, Uncovered
from gradverify.run.signature import forward_parameters
from gradverify.run.source import source_of


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
    if not functions:
        return ()
    found = [*_integers_with_gradient(problem, seed)]
    if may_be_uncovered(functions):
        seed_everywhere(own_seed(seed))
        _, watched = watch(lambda: _forward_and_backward(problem, seed), functions)
        found += (replace(entry, file=shown_path(entry.file)) for entry in uncovered(watched, functions))
    return tuple(found)


def functions_under_test(problem: Problem, target: Any) -> Sequence[FunctionType]:
    """Return the functions of the target; if it is no Function, also those of the Functions in its graph.

    Raises EvaluationError if forward does.
    """
    own = functions_of(target)
    if any(function.__name__ in ("backward", "vjp") for function in own):
        return own
    classes = dict.fromkeys(class_of(node) for node in custom_nodes(record(problem)))
    return tuple(dict.fromkeys((*own, *functions_together(classes))))


def _integers_with_gradient(problem: Problem, seed: int) -> Iterator[Uncovered]:
    """Yield every tensor of integers for which a hand-written backward returns a gradient; autograd drops it."""
    if all(_is_differentiable(given.tensor) for given in problem.fixed.originals):
        return
    arguments: defaultdict[type, list[tuple[Any, ...]]] = defaultdict(list)

    def keep(original: Callable[[], Any], cls: type, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        arguments[cls].append(args)
        return original()

    seed_everywhere(own_seed(seed))
    with intercepted_apply(keep):
        tape = record(problem)
    nodes = custom_nodes(tape)
    with recorded_exchanges(nodes) as exchanges:
        _backward(problem, tape, seed)
    for exchange in exchanges:
        yield from _dropped(exchange, arguments[class_of(exchange.node)])


def _dropped(exchange: Exchange, calls: Sequence[tuple[Any, ...]]) -> Iterator[Uncovered]:
    """Yield the arguments, tensors of integers in all calls, for which this backward returned a gradient."""
    function = class_of(exchange.node)
    source, parameters = source_of(function), forward_parameters(function) or []
    for place, (gradient, parameter) in enumerate(zip(exchange.returned, parameters, strict=False)):
        given = [args[place] for args in calls if place < len(args)]
        are_integers = all(isinstance(each, Tensor) and not _is_differentiable(each) for each in given)
        if source and given and are_integers and isinstance(gradient, Tensor) and _is_differentiable(gradient):
            yield Uncovered(
                file=source.file,
                line=source.line,
                within=function.__name__,
                text=parameter.name,
                never=Side.DIFFERENTIATED,
            )


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _forward_and_backward(problem: Problem, seed: int) -> None:
    _backward(problem, record(problem), seed)


def _backward(problem: Problem, tape: Tape, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    cotangents = [_normal_like(output.tensor, generator) for output in tape.outputs]
    with torch.no_grad():
        vjp(problem, tape, cotangents)


def _normal_like(output: Tensor, generator: torch.Generator) -> Tensor:
    """Return normal random numbers: cotangents of both signs."""
    values = torch.randn(output.shape, generator=generator, dtype=output.dtype, device="cpu")
    return values.to(output.device)
