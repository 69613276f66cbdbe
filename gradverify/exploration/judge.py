"""Judge a try with a few calls: one forward, one vjp per output, and differences along random directions.

It only sorts tries: what it does not find right is judged entry by entry by a check, and only that check accuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

import torch
from torch import Tensor

from gradverify.checks.contract.uninitialised import poisoned_memory
from gradverify.checks.failures import first_line
from gradverify.core.model.coordinates import flatten
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.errors import EvaluationError
from gradverify.exploration.change import Watching, plainly
from gradverify.exploration.slopes import surroundings, wrong_claims
from gradverify.result import CheckResult

_DIRECTIONS = 3  # random directions, at least; one per input if there are more inputs
_MOST = 6  # outputs, and inputs, that are looked at one by one


class Outcome(Enum):
    """What came of a try."""

    ILLEGAL = "illegal"  # forward raised, or returned nothing finite
    RIGHT = "right"
    SUSPECT = "suspect"  # to be judged entry by entry
    REFUSED = "refused"  # forward ran and backward raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The outcome of one try."""

    outcome: Outcome
    message: str = ""  # what was raised
    pairs: frozenset[tuple[str, str]] = frozenset()  # output and input that seem wrong
    is_smooth: bool = True  # False if slopes from the two sides differ along some direction
    overwrites: bool = False  # True if backward changes the cotangent that it gets
    not_finite: bool = False  # True if gradients are not, while uninitialised memory holds NaN
    outputs: int = 0  # entries of all outputs
    result: CheckResult | None = None  # of the check itself, if it was asked at once


def judge(problem: Problem, seed: int, watching: Watching = plainly) -> Judged:
    """Return the outcome of a problem; raises OutOfTime and nothing else of user code.

    The forward and the backward that are judged run under `watching`.
    """
    generator = torch.Generator().manual_seed(seed)
    try:
        found = _evaluated(problem, generator, watching)
    except RuntimeError:  # an operation that sparse tensors and other kinds do not have
        return Judged(outcome=Outcome.SUSPECT, pairs=frozenset({("", "")}))
    if isinstance(found, Judged):
        return found
    outputs = sum(output.tensor.numel() for output in found.tape.outputs)
    try:
        pairs, is_smooth = _suspects(problem, found, generator)
    except (EvaluationError, KeyError, RuntimeError):  # beside the point, forward raises or returns something else
        return Judged(outcome=Outcome.SUSPECT, pairs=frozenset({("", "")}), outputs=outputs)
    return Judged(
        outcome=Outcome.SUSPECT if pairs else Outcome.RIGHT,
        pairs=pairs,
        is_smooth=is_smooth,
        outputs=outputs,
        overwrites=found.overwrites,
        not_finite=not all(
            bool(flatten([each]).isfinite().all()) for each in chain(*found.gradients) if each is not None
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluated:
    """One forward, and the gradients for random cotangents."""

    tape: Tape
    cotangents: list[Tensor]  # one per output
    gradients: list[tuple[Tensor | None, ...]]  # one per output, or one for all
    overwrites: bool


def _evaluated(problem: Problem, generator: torch.Generator, watching: Watching) -> _Evaluated | Judged:
    try:
        with poisoned_memory():  # an output that is not written in full is no function of the inputs
            tape = watching(lambda: record(problem))
        legal = _is_legal(tape)
    except EvaluationError as error:
        return Judged(outcome=Outcome.ILLEGAL, message=first_line(error.original))
    if not legal:
        return Judged(outcome=Outcome.ILLEGAL, message="forward returns nothing finite, or memory that nobody wrote")
    cotangents = _cotangents(tape, generator)
    parts = _one_by_one(cotangents)
    given = [[each.clone() for each in part] for part in parts]
    try:
        with poisoned_memory():
            gradients = watching(lambda: [vjp(problem, tape, part) for part in given])
    except EvaluationError as error:
        return Judged(outcome=Outcome.REFUSED, message=_raised(error))
    overwrites = not all(map(torch.equal, chain(*parts), chain(*given)))
    return _Evaluated(tape=tape, cotangents=cotangents, gradients=gradients, overwrites=overwrites)


def _raised(error: EvaluationError) -> str:
    name, text = type(error.original).__name__, first_line(error.original)
    return f"backward raised {name if text == name else f'{name}: {text}'}"


def _is_legal(tape: Tape) -> bool:
    outputs = [output.tensor.detach() for output in tape.outputs]
    finite = all(bool(torch.isfinite(output).all()) for output in outputs)
    is_empty = not all(leaf.numel() for leaf in tape.leaves)
    return finite and (is_empty or any(output.numel() for output in outputs))


def _cotangents(tape: Tape, generator: torch.Generator) -> list[Tensor]:
    return [_random(output.tensor, generator) for output in tape.outputs]


def _random(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers of both signs between 0.5 and 1.5 in size, in the shape and dtype of `like`."""
    wide = torch.complex128 if like.is_complex() else torch.float64
    values = torch.rand(like.shape, generator=generator, dtype=wide)
    signs = torch.randint(0, 2, like.shape, generator=generator, dtype=torch.int64) * 2 - 1
    return ((values + (0.5 + 0.5j if like.is_complex() else 0.5)) * signs).to(device=like.device, dtype=like.dtype)


def _one_by_one(cotangents: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the cotangents with all but one of them zero, once for each; all at once if there are many."""
    if len(cotangents) > _MOST:
        return [list(cotangents)]
    zeros = [torch.zeros_like(each) for each in cotangents]
    return [
        [each if number == place else zeros[place] for place, each in enumerate(cotangents)]
        for number in range(len(cotangents))
    ]


def _suspects(
    problem: Problem, found: _Evaluated, generator: torch.Generator
) -> tuple[frozenset[tuple[str, str]], bool]:
    """Return the pairs of output and input for which a directional derivative differs at every step.

    The second value is False if slopes from the two sides differ along some direction.
    """
    around = surroundings(problem, found.tape)
    weights = [[flatten([part]) for part in parts] for parts in _one_by_one(found.cotangents)]
    names = around.outputs if len(found.gradients) == len(around.outputs) else ("all",)
    pairs = set()
    is_smooth = True
    for inputs in _directions(len(around.points)):
        tangents = [_direction(point, generator) if k in inputs else None for k, point in enumerate(around.points)]
        claims = [_along(gradient, tangents) for gradient in found.gradients]
        wrong = [number for number, claim in enumerate(claims) if not math.isfinite(claim)]
        if not wrong:
            wrong, has_kink = wrong_claims(around, tangents, claims, weights)
            is_smooth = is_smooth and not has_kink
        pairs |= {(names[number], problem.primals[k].name) for number in wrong for k in inputs}
    return frozenset(pairs), is_smooth


def _directions(inputs: int) -> list[tuple[int, ...]]:
    """Return which inputs are moved in each direction: one by one, but all together if there are many."""
    if inputs > _MOST:
        return [tuple(range(inputs))] * _DIRECTIONS
    count = max(_DIRECTIONS, inputs)
    return [(number % inputs,) for number in range(count)]


def _direction(point: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random direction as coordinates (n,), in each entry as large as the point is there."""
    values = flatten([point])
    largest = float(values.abs().max()) if values.numel() else 0.0
    size = values.abs().clamp(min=0.1 * largest if largest else 1.0)
    return flatten([_random(point, generator)]) * size


def _along(gradient: Sequence[Tensor | None], tangents: Sequence[Tensor | None]) -> float:
    """Return the product of a vjp with a direction."""
    total = 0.0
    for part, tangent in zip(gradient, tangents, strict=True):
        if part is not None and tangent is not None:
            total += float((flatten([part]) * tangent).sum())
    return total
