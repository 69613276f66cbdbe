"""How well `reference` judges kernels in low precision: right ones, and right ones with a mistake planted in backward.

Kernels in plain torch have four sizes, the Triton kernels of specs/kernels a small one. Each mistake is made in the
gradient by the first input. A mistake that has to be found and passes is missed; others that pass are below the limit.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd import Function

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.kernel_goals import goals, goals_table
from benchmarks.kernel_subjects import SIZES, KernelSubject, plain_subjects, triton_subjects
from benchmarks.plain_table import table
from benchmarks.record import Row, Standing, Total, judged_row, standing_of_right, with_evaluations
from benchmarks.subject import result_of
from gradverify.core.model.problem import Problem, bind
from gradverify.result import CheckResult, Verdict

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FACTORS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)  # of the common factors tried by --limits
Change = Callable[[Tensor, Tensor], Tensor]  # (gradient, input) -> wrong gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One planted mistake."""

    name: str
    change: Change
    found_in: Callable[[str, str], bool]  # (dtype, size) -> whether it has to be found


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One judged kernel."""

    kernel: str
    dtype: str
    size: str
    mistake: str | None  # None for the right kernel
    row: Row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("-k", default="", metavar="TEXT", help="kernels whose name contains TEXT")
    parser.add_argument("--dtype", choices=DTYPES, help="this dtype only")
    parser.add_argument("--size", choices=SIZES, help="this size only")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="inputs of each kernel")
    parser.add_argument("--no-triton", action="store_true", help="leave out the Triton kernels")
    parser.add_argument("--limits", action="store_true", help="find the smallest common factor that is noticed")
    options = parsed_options(parser)
    found: list[Judged] = []
    for subject, dtype, size, seed in _selected(options):
        for judged in judge(subject, dtype, size, seed, FACTORS if options.limits else ()):
            found.append(judged)
            if judged.row.standing not in (Standing.RIGHT, Standing.BELOW_LIMIT):
                print(f"{judged.row.standing.value}: {judged.row.key}: {judged.row.note}", flush=True)
    print(_counts(found))
    print()
    print(_goals(found))
    if options.limits:
        print()
        print(_smallest(found))
    save("kernels", options, [judged.row for judged in found], _totals(found))


def judge(subject: KernelSubject, dtype: str, size: str, seed: int, factors: Sequence[float] = ()) -> Iterator[Judged]:
    """Yield the verdict on the right kernel, on every mistake, and on falling common factors up to the first missed."""
    given = subject.inputs(*SIZES[size], Generator().manual_seed(seed))
    inputs = [each.to(DTYPES[dtype]).requires_grad_() for each in given]
    key = f"{subject.name} {dtype} {size} seed {seed}"
    result = _result(subject, subject.function, inputs, seed)
    row = _with_cost(judged_row(key, result, standing_of_right(result.verdict)), result)
    yield Judged(kernel=subject.name, dtype=dtype, size=size, mistake=None, row=row)
    for mistake in MISTAKES:
        result = _result(subject, partial(_Wrong.apply, subject.function, mistake.change), inputs, seed)
        standing = _standing(result.verdict, mistake.found_in(dtype, size))
        row = _with_cost(judged_row(f"{key}: {mistake.name}", result, standing), result)
        yield Judged(kernel=subject.name, dtype=dtype, size=size, mistake=mistake.name, row=row)
    for factor in factors:
        result = _result(subject, partial(_Wrong.apply, subject.function, _times(1 + factor)), inputs, seed)
        if result.verdict is not Verdict.FAIL:
            return
        row = _with_cost(judged_row(f"{key}: × (1 + {factor:g})", result, Standing.RIGHT), result)
        yield Judged(kernel=subject.name, dtype=dtype, size=size, mistake=f"{factor:g}", row=row)


class _Wrong(Function):
    """A right function of one output, with a change of the gradient by its first input."""

    @staticmethod
    def forward(ctx: Any, right: Callable[..., Tensor], change: Change, *inputs: Tensor) -> Tensor:
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in inputs]
            output = right(*leaves)
        ctx.change, ctx.leaves, ctx.output = change, leaves, output
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        first, *others = torch.autograd.grad(ctx.output, ctx.leaves, grad, retain_graph=True)
        return None, None, ctx.change(first, ctx.leaves[0].detach()), *others


def _selected(options: Namespace) -> Iterator[tuple[KernelSubject, str, str, int]]:
    subjects = [*plain_subjects(), *(() if options.no_triton else triton_subjects())]
    for subject in subjects:
        if options.k not in subject.name:
            continue
        for dtype in DTYPES if options.dtype is None else (options.dtype,):
            for size in subject.sizes if options.size is None else (options.size,):
                if size in subject.sizes:
                    yield from ((subject, dtype, size, seed) for seed in range(options.seeds))


def _result(
    subject: KernelSubject, function: Callable[..., Tensor], inputs: Sequence[Tensor], seed: int
) -> CheckResult:
    return result_of("reference", _problem(subject, function, inputs), seed)


def _problem(subject: KernelSubject, function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Problem:
    names = [f"x{number}" for number in range(len(inputs))]
    problem = bind(function, inputs, names=names, name=subject.name)
    return replace(problem, reference=bind(subject.reference, inputs, names=names, name=f"{subject.name} reference"))


def _standing(verdict: Verdict, has_to_be_found: bool) -> Standing:
    if verdict is Verdict.FAIL:
        return Standing.RIGHT
    if verdict is Verdict.PASS:
        return Standing.MISSED if has_to_be_found else Standing.BELOW_LIMIT
    return Standing.INCONCLUSIVE if verdict is Verdict.INCONCLUSIVE else Standing.ERROR


def _with_cost(row: Row, result: CheckResult) -> Row:
    return with_evaluations(row, result)


def _changed(gradient: Tensor, place: Any, factor: float) -> Tensor:
    wrong = gradient.clone()
    wrong[place] = wrong[place] * factor
    return wrong


def _times(factor: float) -> Change:
    return lambda gradient, _: (gradient.double() * factor).to(gradient.dtype)


def _last_entry(gradient: Tensor, _: Tensor) -> Tensor:
    return _changed(gradient.reshape(-1), -1, 0.0).reshape(gradient.shape)


def _last_rows(gradient: Tensor, _: Tensor) -> Tensor:
    return _changed(gradient, (..., slice(-max(1, gradient.shape[-2] // 8), None), slice(None)), 0.0)


def _one_row(gradient: Tensor, _: Tensor) -> Tensor:
    return _changed(gradient, (..., gradient.shape[-2] // 3, slice(None)), 0.0)


def _shift(gradient: Tensor, _: Tensor) -> Tensor:
    return gradient.roll(1, dims=-1)


def _mask(gradient: Tensor, given: Tensor) -> Tensor:
    return gradient * (given > 0)


def _one_entry(factor: float) -> Change:
    def change(gradient: Tensor, _: Tensor) -> Tensor:
        place = gradient.numel() * 3 // 5
        return _changed(gradient.double().reshape(-1), place, factor).reshape(gradient.shape).to(gradient.dtype)

    return change


def _always(dtype: str, size: str) -> bool:
    return True


def _in_float32(dtype: str, size: str) -> bool:
    return dtype == "float32"


def _if_large(dtype: str, size: str) -> bool:
    return dtype == "float32" or size == "large"


MISTAKES = (
    Mistake(name="last entry 0", change=_last_entry, found_in=_always),
    Mistake(name="last rows 0", change=_last_rows, found_in=_always),
    Mistake(name="one row 0", change=_one_row, found_in=_always),
    Mistake(name="shifted", change=_shift, found_in=_always),
    Mistake(name="masked", change=_mask, found_in=_always),
    Mistake(name="× 1.01", change=_times(1.01), found_in=_if_large),
    Mistake(name="× 1.0001", change=_times(1.0001), found_in=_in_float32),
    Mistake(name="one × 1.001", change=_one_entry(1.001), found_in=_in_float32),
    Mistake(name="one × 2", change=_one_entry(2.0), found_in=_in_float32),
)


def _counts(found: Sequence[Judged]) -> str:
    """Return a table of false alarms, and of mistakes caught / missed / below the limit, by dtype and size."""
    groups = list(dict.fromkeys((each.dtype, each.size) for each in found))
    counts = Counter((each.dtype, each.size, each.mistake, each.row.standing) for each in found)
    names = [None, *(mistake.name for mistake in MISTAKES)]
    header = ("kernels", *(name or "right" for name in names))

    def cell(dtype: str, size: str, name: str | None) -> str:
        right, missed, below = (
            counts[dtype, size, name, standing]
            for standing in (
                Standing.RIGHT,
                Standing.FALSE_ALARM if name is None else Standing.MISSED,
                Standing.BELOW_LIMIT,
            )
        )
        other = sum(count for key, count in counts.items() if key[:3] == (dtype, size, name)) - right - missed - below
        return "/".join(map(str, (right, missed, *((below,) if name else ()), *((f"?{other}",) if other else ()))))

    rows = [(f"{dtype} {size}", *(cell(dtype, size, name) for name in names)) for dtype, size in groups]
    return f"right: passes/false alarms; mistakes: caught/missed/below the limit\n{table(header, rows)}"


def _goals(found: Sequence[Judged]) -> str:
    to_find = {mistake.name: mistake.found_in for mistake in MISTAKES}
    right = [each.row for each in found if each.mistake is None]
    needed = [each.row for each in found if each.mistake in to_find and to_find[each.mistake](each.dtype, each.size)]
    return goals_table(list(goals(right, needed)))


def _smallest(found: Sequence[Judged]) -> str:
    """Return the smallest common factor that each kernel's check notices; `-` for none."""
    groups = list(dict.fromkeys((each.dtype, each.size) for each in found))
    noticed: dict[tuple[str, str, str], float] = {}
    for each in found:
        if each.mistake is not None and each.mistake[0].isdigit():
            key = (each.kernel, each.dtype, each.size)
            noticed[key] = min(float(each.mistake), noticed.get(key, 1.0))
    kernels = list(dict.fromkeys(each.kernel for each in found))
    rows = [
        (kernel, *(f"{noticed[key]:g}" if (key := (kernel, *group)) in noticed else "-" for group in groups))
        for kernel in kernels
    ]
    header = ("smallest factor - 1 noticed", *(f"{dtype} {size}" for dtype, size in groups))
    return table(header, rows)


def _totals(found: Sequence[Judged]) -> Iterator[Total]:
    right = [each for each in found if each.mistake is None]
    yield Total(name="false alarms", value=sum(each.row.standing is Standing.FALSE_ALARM for each in right))
    yield Total(name="most forwards", value=max((each.row.forward or 0 for each in right), default=0))
    yield Total(name="most backwards", value=max((each.row.backward or 0 for each in right), default=0))


if __name__ == "__main__":
    main()
