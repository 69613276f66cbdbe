"""Cost of one check, ours beside torch's gradcheck (slow) on the same function and inputs, in one run.

    python -m benchmarks.speed [--repeat N] [-k TEXT]

Prints medians of the times, their ratio, our evaluations of each kind, and our time in units of one forward and
backward (F+B). Where gradcheck would take more than a minute it is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.problem import bind
from gradverify.result import CheckResult

ALONE = Settings(torch_gradcheck=TorchGradcheck.NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One function with the shapes of its inputs."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    check: str = "gradcheck"
    beside: bool = True  # whether gradcheck can do it in reasonable time


WORKS = (
    *(Work(name=f"sin, {10**k} elements", function=torch.sin, shapes=((10**k,),), beside=k < 4) for k in range(1, 7)),
    Work(name="relu, 1000 elements", function=torch.relu, shapes=((1000,),)),
    Work(name="layer norm 64x32", function=lambda x: functional.layer_norm(x, (32,)), shapes=((64, 32),)),
    Work(name="softmax 64x32", function=lambda x: x.softmax(-1), shapes=((64, 32),)),
    Work(name="matmul 32x32 by 32x32", function=torch.matmul, shapes=((32, 32), (32, 32))),
    Work(name="conv2d 2x3x16x16 by 4x3x3x3", function=functional.conv2d, shapes=((2, 3, 16, 16), (4, 3, 3, 3))),
    Work(name="sin, 5 elements", function=torch.sin, shapes=((5,),)),
    Work(name="sin, 5 elements, order 2", function=torch.sin, shapes=((5,),), check="gradgradcheck"),
    Work(name="sin, 300 elements, order 2", function=torch.sin, shapes=((300,),), check="gradgradcheck"),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("-k", default="", metavar="TEXT", help="only works whose name has TEXT in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = (
        f"{'work':30}{'ours ms':>10}{'torch ms':>10}{'ratio':>8}{'forward':>9}{'backward':>9}  {'method':11}{'F+B':>7}"
    )
    print(head)
    for work in WORKS:
        if options.k in work.name:
            print(_row(work, options.repeat))


def _row(work: Work, repeat: int) -> str:
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in work.shapes
    )
    problem = bind(work.function, inputs, names=[f"x{k}" for k in range(len(inputs))])
    results: list[CheckResult] = []
    ours = _median(lambda: results.append(run_check(work.check, problem, ALONE)), repeat)
    theirs = _median(lambda: _torch(work, inputs), min(repeat, 3)) if work.beside else None
    once = _median(lambda: _forward_backward(work, inputs), repeat)
    result = results[-1]
    assert result.verdict == "pass", result
    ratio = "" if theirs is None else f"{theirs / ours:.1f}"
    beside = "" if theirs is None else f"{theirs * 1e3:.1f}"
    count = result.evaluations
    return (
        f"{work.name:30}{ours * 1e3:10.1f}{beside:>10}{ratio:>8}{count.forward:9}{count.backward:9}"
        f"  {result.method or '':11}{ours / once:7.0f}"
    )


def _torch(work: Work, inputs: tuple[Tensor, ...]) -> None:
    check = getattr(torch.autograd, work.check)
    assert check(work.function, inputs)


def _forward_backward(work: Work, inputs: tuple[Tensor, ...]) -> None:
    output = work.function(*inputs)
    torch.autograd.grad(output.sum(), inputs)


def _median(run: Callable[[], Any], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
