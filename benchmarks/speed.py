"""Cost of one check, ours beside torch's gradcheck (slow) on the same function and inputs, in one run.

    python -m benchmarks.speed [--repeat N] [-k TEXT] [--device NAME] [--plot FILE.svg] [--json FILE]

Ours and torch's take turns, so that a slow period of the machine affects both. Prints medians of the times and of the
ratios of adjacent times, our evaluations of each kind, our time in units of one forward and backward (F+B), and the
growth of our memory in sizes of the input. gradcheck is left out if it would take more than a minute. `--plot` draws
both times against the size of an elementwise function. On a device such as `cuda` the clock stops after a
synchronisation, and the memory is the device's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.growth import Point, plot
from benchmarks.record import Row, Standing, judged_row
from benchmarks.speed_works import EVERY, WORKS, Work
from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import CHECKS, run_check
from gradverify.core.model.problem import Problem, bind
from gradverify.result import CheckResult

ALONE = Settings(torch_gradcheck=TorchGradcheck.NEVER)
TRACED = "compile"  # left out of EVERY: nearly all of its time is torch's own tracer
_TORCH_CHECKS = ("gradcheck", "gradgradcheck")
GROWTH = "sin, "  # prefix of the works in the plot
_LARGE = 100_000  # input entries from which memory is measured
_SLOW = 10_000  # input entries from which there is one round, because torch's check takes many seconds
_TURNS = 9  # runs of ours per run of torch's, which takes many times longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Times measured one after another, in seconds."""

    ours: float
    theirs: float | None  # None if torch's check was left out
    forward_backward: float  # one forward and backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Medians of several rounds, and one result of the check."""

    ours: float  # seconds
    theirs: float | None  # seconds; None if torch's check was left out
    ratio: float | None  # of theirs to ours
    passes: float  # ours in units of one forward and backward
    memory: float | None  # growth of the process by our check, in sizes of the input; None for small inputs
    result: CheckResult


def main() -> None:
    """Measure the works that the command line selects and print the table."""
    options = _options()
    device = torch.device(options.device)
    if options.grown:
        _print_grown(next(work for work in WORKS if work.name == options.grown), device)
        return
    print(
        f"{'work':32}{'ours ms':>10}{'torch ms':>10}{'ratio':>8}{'forward':>9}{'backward':>9}  {'method':11}{'F+B':>7}"
        f"{'memory':>8}"
    )
    points, rows = [], []
    for work in WORKS:
        if options.k in work.name:
            found = _measured(work, options.repeat, device)
            print(_line(work, found), flush=True)
            rows.append(_row(work, found))
            if work.name.startswith(GROWTH):
                points.append(Point(size=work.shapes[0][0], ours=found.ours, theirs=found.theirs))
    if options.plot is not None:
        options.plot.write_text(plot(points), encoding="utf-8")
    save("speed", options, rows)


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="rounds of each, of which the median counts")
    parser.add_argument("-k", default="", metavar="TEXT", help="only works whose name has TEXT in it")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where the inputs are")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw how the times grow, as SVG")
    parser.add_argument("--grown", default="", metavar="NAME", help="only print by how much this work makes us grow")
    return parsed_options(parser)


def _problem(work: Work, device: torch.device) -> Problem:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in work.shapes]
    inputs = [values.to(device, work.dtype).requires_grad_() for values in drawn]
    return bind(work.function, inputs, names=[f"x{k}" for k in range(len(inputs))])


def _measured(work: Work, repeat: int, device: torch.device) -> Measured:
    problem = _problem(work, device)
    inputs = tuple(primal.tensor.clone().requires_grad_() for primal in problem.primals)
    results: list[CheckResult] = []
    checks = [check.name for check in CHECKS if check.name != TRACED] if work.check == EVERY else [work.check]
    slow = sum(entry.numel() for entry in inputs) >= _SLOW
    rounds = [
        Round(
            ours=_median(lambda: results.extend(run_check(check, problem, ALONE) for check in checks), _TURNS, device),
            theirs=_median(lambda: _run_torch(work, inputs), 1, device) if work.with_torch else None,
            forward_backward=_median(lambda: _forward_backward(work, inputs), _TURNS, device),
        )
        for _ in range(1 if slow else repeat)
    ]
    assert all(result.verdict in (("fail",) if work.wrong else ("pass", "skip")) for result in results), results
    return Measured(
        ours=statistics.median(each.ours for each in rounds),
        theirs=_median_of(each.theirs for each in rounds),
        ratio=_median_of(each.theirs / each.ours for each in rounds if each.theirs is not None),
        passes=statistics.median(each.ours / each.forward_backward for each in rounds),
        memory=_grown(work, device),
        result=results[0],
    )


def _row(work: Work, found: Measured) -> Row:
    cost, against = (
        (found.passes, "one forward and backward") if found.ratio is None else (1 / found.ratio, "gradcheck")
    )
    count = found.result.evaluations
    return replace(
        judged_row(work.name, found.result, Standing.RIGHT),  # a wrong verdict ends the run with an assertion
        cost=cost,
        against=against,
        forward=count.forward,
        backward=count.backward,
    )


def _line(work: Work, found: Measured) -> str:
    ratio = "" if found.ratio is None else f"{found.ratio:.1f}"
    beside = "" if found.theirs is None else f"{found.theirs * 1e3:.1f}"
    memory = "" if found.memory is None else f"{found.memory:.0f}"
    count = found.result.evaluations
    return (
        f"{work.name:32}{found.ours * 1e3:10.1f}{beside:>10}{ratio:>8}{count.forward:9}{count.backward:9}"
        f"  {found.result.method or '':11}{found.passes:7.0f}{memory:>8}"
    )


def _grown(work: Work, device: torch.device) -> float | None:
    """Return the memory growth of a fresh process by this work, in sizes of the input; None for small inputs."""
    if sum(map(math.prod, work.shapes)) < _LARGE:
        return None
    command = [sys.executable, "-m", "benchmarks.speed", "--grown", work.name, "--device", str(device)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _print_grown(work: Work, device: torch.device) -> None:
    small = replace(work, shapes=tuple((min(4, shape[0]), *shape[1:]) for shape in work.shapes))
    run_check(
        work.check, _problem(small, device), ALONE
    )  # loads everything that the first run loads, before the measurement
    problem = _problem(work, device)
    before = _peak_memory(device)
    run_check(work.check, problem, ALONE)
    print((_peak_memory(device) - before) / sum(primal.tensor.nbytes for primal in problem.primals))


def _peak_memory(device: torch.device) -> int:
    """Return this process's peak memory on the device, in bytes, without its parent's (Linux)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("the system does not say how much memory a process held")


def _run_torch(work: Work, inputs: tuple[Tensor, ...]) -> None:
    for check in _TORCH_CHECKS if work.check == EVERY else (work.check,):
        assert getattr(torch.autograd, check)(work.function, inputs)


def _forward_backward(work: Work, inputs: tuple[Tensor, ...]) -> None:
    output = work.function(*inputs)
    torch.autograd.grad(output.sum(), inputs)


def _median_of(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return statistics.median(known) if known else None


def _median(run: Callable[[], Any], repeat: int, device: torch.device) -> float:
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
