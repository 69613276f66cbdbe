"""Judge random compositions of torch's operators: `python -m benchmarks.compositions [--count N] [--first SEED]`.

Each applies two to nine operators to inputs that are large, small, far from zero, of mixed magnitudes, or multiples of
one half. torch differentiates them, so none should fail. If one passes, mistakes are planted in its gradient. Prints
every composition that does not pass, every mistake that is not caught, and the counts.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.compositions_parts import ALONG, PAIRS, REDUCTIONS, SINGLE
from benchmarks.mistakes import FaultOutcome, outcomes, outcomes_table
from benchmarks.record import Row, Standing, judged_row, standing_of_right
from benchmarks.subject import result_of
from gradverify.core.model.problem import Problem, bind
from gradverify.result import Verdict

_SIZES = (1, 2, 3, 4, 5, 8)
_LONG = (30, 100)
_TRIES = 100  # largest number of operators drawn for one composition
_LARGEST, _FARTHEST = 400, 1e9  # largest number of entries and largest magnitude of an intermediate tensor
_OF_SIZE = 1e-4  # times the largest gradient entry: mistakes are planted in larger entries

Step = Callable[[Sequence[Tensor]], Tensor]  # from all tensors so far to the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A sequence of operators."""

    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    names: tuple[str, ...]

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the result of the last step."""
        tensors = list(inputs)
        for step in self.steps:
            tensors.append(step(tensors))
        return tensors[-1]


def main() -> None:
    """Judge the compositions that the command line selects and print the counts."""
    options = _options()
    begin, verdicts = time.perf_counter(), Counter[str]()
    rows, planted = list[Row](), list[FaultOutcome]()
    for name, problem in differentiated_problems(range(options.first, options.first + options.count)):
        result = result_of(options.check, problem, 0)
        verdicts[result.verdict.value] += 1
        rows.append(judged_row(name, result, standing_of_right(result.verdict)))
        if result.verdict is not Verdict.PASS:
            print(f"{result.verdict:13} {rows[-1].key}: {rows[-1].note}", flush=True)
        elif options.check == "gradcheck":
            for answer in outcomes(name, problem, 0, _OF_SIZE):
                planted.append(answer)
                if answer.row.standing is not Standing.RIGHT:
                    print(f"{answer.outcome:13} {answer.row.key}: {answer.row.note}", flush=True)
    print(*(f"{verdict:13} {count}" for verdict, count in sorted(verdicts.items())), sep="\n")
    print(outcomes_table(planted))
    print(f"{options.count} from seed {options.first}, {time.perf_counter() - begin:.0f} s")
    save("compositions", options, [*rows, *(answer.row for answer in planted)])


def _options() -> argparse.Namespace:
    parser = parser_of("Judge random compositions of torch's operators.")
    parser.add_argument("--count", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="seed of the first")
    parser.add_argument("--check", default="gradcheck", choices=("gradcheck", "gradgradcheck"))
    return parsed_options(parser)


def differentiated_problems(seeds: Iterable[int]) -> Iterator[tuple[str, Problem]]:
    """Yield name and problem of the compositions of which torch computes a finite gradient."""
    for seed in seeds:
        chain = composition(seed)
        problem = bind(chain, chain.inputs, names=[f"x{k}" for k in range(len(chain.inputs))])
        if _is_differentiated(chain):
            yield _name(seed, chain), problem


def composition(seed: int) -> Composition:
    """Return the composition of this seed."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs = _inputs(draw, generator)
    steps: list[Step] = []
    names: list[str] = []
    tensors, wanted = list(inputs), draw.randint(2, 9)
    for _ in range(_TRIES):
        name, step = _step(draw, tensors)
        try:
            value = step(tensors)
        except (RuntimeError, IndexError):  # the operator does not accept these shapes
            continue
        if not value.numel() or value.numel() > _LARGEST or not float(value.abs().max()) <= _FARTHEST:
            continue
        tensors.append(value)
        steps.append(step)
        names.append(name)
        if len(steps) == wanted:
            break
    return Composition(
        inputs=tuple(value.clone().requires_grad_() for value in inputs), steps=tuple(steps), names=tuple(names)
    )


def _inputs(draw: random.Random, generator: Generator) -> list[Tensor]:
    shapes = [
        tuple(draw.choice(_SIZES) for _ in range(draw.choice((1, 1, 2, 2, 3)))) for _ in range(draw.randint(1, 3))
    ]
    if draw.random() < 0.4:
        shapes = [shapes[0]] * len(shapes)
    if draw.random() < 0.1:
        shapes = [(draw.choice(_LONG),)] * len(shapes)
    kind = draw.random()
    return [_input(shape, kind, draw, generator) for shape in shapes]


def _shape(draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.choice(_SIZES) for _ in range(draw.choice((1, 1, 2, 2, 3))))


def _input(shape: tuple[int, ...], kind: float, draw: random.Random, generator: Generator) -> Tensor:
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind < 0.35:
        return values * 10 ** draw.uniform(-4, 4)
    if kind < 0.5:
        return values + 10 ** draw.uniform(0, 5)
    if kind < 0.6:
        return values * 10 ** (8 * torch.rand(shape, generator=generator, dtype=torch.float64) - 4)
    if kind < 0.66:
        return (4 * values).round() / 2
    return values


def _step(draw: random.Random, tensors: Sequence[Tensor]) -> tuple[str, Step]:
    """Return the name and step of a random operator, applied to the last tensor or, less often, to an earlier one."""
    place = draw.randrange(len(tensors)) if draw.random() < 0.3 else len(tensors) - 1
    dimensions, kind = tensors[place].dim(), draw.random()
    if kind < 0.5 or not dimensions:
        name, single = draw.choice(list(SINGLE.items()))
        return name, lambda values: single(values[place])
    dimension = draw.randrange(dimensions)
    if kind < 0.6:
        name, reduction = draw.choice(list(REDUCTIONS.items()))
        keep = draw.random() < 0.5
        return name, lambda values: reduction(values[place], dimension, keep)
    if kind < 0.8:
        name, along = draw.choice(list(ALONG.items()))
        return name, lambda values: along(values[place], dimension)
    name, pair = draw.choice(list(PAIRS.items()))
    other = draw.randrange(len(tensors) - 1) if len(tensors) > 1 else place
    other = len(tensors) - 1 if other == place else other
    return name, lambda values: pair(values[place], values[other])


def _is_differentiated(chain: Composition) -> bool:
    """True if torch computes a gradient and it is finite; else the gradient is wrong or does not exist."""
    if not chain.steps:
        return False
    value = chain(*chain.inputs)
    if not value.requires_grad:
        return False
    grads = torch.autograd.grad(value.sum(), chain.inputs, allow_unused=True)
    return all(grad is None or bool(grad.isfinite().all()) for grad in grads)


def _name(seed: int, chain: Composition) -> str:
    shapes = " ".join("x".join(map(str, value.shape)) for value in chain.inputs)
    return f"{seed} [{shapes}] {' '.join(chain.names)}"


if __name__ == "__main__":
    main()
