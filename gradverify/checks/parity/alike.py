"""Whether a problem and its twin on the CPU can be compared: the same inputs, and outputs of the same kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from gradverify.core.model.magnitudes import identical
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape
from gradverify.result import Against, Finding, Verdict

CODE = "GV707"


def with_calls_of(problem: Problem, on_cpu: Problem) -> Problem:
    """Return the problem on the CPU, its calls counted and limited as those on the device."""
    return replace(
        on_cpu,
        accumulates=problem.accumulates,
        fresh_graphs=problem.fresh_graphs,
        meter=problem.meter,
        deadline=problem.deadline,
    )


def same_inputs(problem: Problem, on_cpu: Problem) -> bool:
    """Return True if all inputs, differentiated or not, are the same numbers on both devices."""
    pairs = [(one.name, one.tensor) for one in problem.primals], [(one.name, one.tensor) for one in on_cpu.primals]
    fixed = [(one.name, one.value) for one in problem.bound], [(one.name, one.value) for one in on_cpu.bound]
    return all(
        [name for name, _ in ours] == [name for name, _ in others]
        and all(_same(one, other) for (_, one), (_, other) in zip(ours, others, strict=True))
        for ours, others in (pairs, fixed)
    )


def _same(one: Tensor | float, other: Tensor | float) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return bool(one == other or (one != one and other != other))
    return other.is_cpu and (one.shape, one.dtype) == (other.shape, other.dtype) and identical(one.cpu(), other)


def unlike(tape: Tape, taped: Tape, device: str) -> Iterator[Finding]:
    """Yield how the outputs on `device` differ from those on the CPU in number, shape or dtype."""
    if len(tape.outputs) != len(taped.outputs):
        counts = f"{len(tape.outputs):,} on {device} and {len(taped.outputs):,} on the CPU"
        yield _unequal(f"the number of floating and complex outputs is {counts}")
        return
    for own, other in zip(tape.outputs, taped.outputs, strict=True):
        one, two = own.tensor, other.tensor
        if one.shape != two.shape:
            yield _unequal(
                f"{own.name} has shape {list(one.shape)} on {device}, on the CPU {list(two.shape)}", own.name
            )
        elif one.dtype != two.dtype:
            names = [str(each.dtype).removeprefix("torch.") for each in (one, two)]
            yield _unequal(f"{own.name} is {names[0]} on {device}, on the CPU {names[1]}", own.name)
        elif one.requires_grad != two.requires_grad:
            there, elsewhere = (device, "the CPU") if one.requires_grad else ("the CPU", device)
            yield _unequal(f"{own.name} can be differentiated on {there}, but not on {elsewhere}", own.name)


def _unequal(message: str, of: str | None = None) -> Finding:
    return Finding(code=CODE, verdict=Verdict.FAIL, of=of, message=message, against=Against.CPU)
