"""What `parity` says of functions that are another one on the other device: `python -m tests.elsewhere.parity`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd import Function

import gradverify
from benchmarks.kernel_subjects import SIZES, plain_subjects
from gradverify.case import Settings
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import CheckResult
from gradverify.run.run_case import run_case
from tests.elsewhere.device import NAME, moved, register
from tests.run.making import case

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64)
Change = Callable[[Tensor], Tensor | None]
Said = dict[str, Any]


def main() -> None:
    """Print what is said of every case."""
    register()
    torch.set_num_threads(1)
    found = {**dict(_in_every_dtype()), **dict(_forms()), **dict(_rounded())}
    json.dump(found, sys.stdout)


def tanh(there: Change = lambda gradient: gradient, output: Change = lambda output: output) -> type[Function]:
    """Return tanh(x * w), whose output and gradient by x are changed on the other device."""

    class Tanh(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor | None:
            y = (x * w).tanh()
            ctx.save_for_backward(x, w, y)
            return output(y) if y.device.type == NAME else y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, w, y = ctx.saved_tensors
            slope = g * (1 - y * y).conj()
            by_x = slope * w.conj()
            return there(by_x) if by_x.device.type == NAME else by_x, (slope * x.conj()).sum(0)

    return Tanh


def drawn(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    values = torch.randn(shape, generator=Generator().manual_seed(seed), dtype=wide)
    return values.to(dtype).requires_grad_()


def last_entry_lost(gradient: Tensor) -> Tensor:
    changed = gradient.clone()
    changed[-1, -1] = 0
    return changed


def one_bit_off(gradient: Tensor) -> Tensor:
    return gradient * (1 + torch.finfo(gradient.dtype).eps)


def without_a_number(output: Tensor) -> Tensor:
    return torch.where(output == output.amax(), torch.nan, output)


def _in_every_dtype() -> Iterator[tuple[str, Said]]:
    functions = {
        "right": tanh(),
        "last entry lost": tanh(last_entry_lost),
        "one bit off": tanh(one_bit_off),
        "none": tanh(lambda gradient: None),
    }
    for dtype in DTYPES:
        inputs = drawn(dtype, 5, 37), drawn(dtype, 37, seed=1)
        for name, function in functions.items():
            yield f"{name}, {str(dtype).removeprefix('torch.')}", _verified(function, *inputs)


def _forms() -> Iterator[tuple[str, Said]]:
    x, w = drawn(torch.float32, 5, 37), drawn(torch.float32, 37, seed=1)
    yield "another shape", _verified(tanh(output=lambda y: y[:1]), x, w)
    yield "another dtype", _verified(tanh(output=lambda y: y.double()), x, w)
    yield "not a number there", _verified(tanh(output=without_a_number), x, w)
    yield "not a number here", _verified(lambda x: x.sqrt() if x.device.type == "cpu" else x.abs().sqrt(), x)
    yield "random", _verified(lambda x: x * torch.rand_like(x), x)
    yield "a module", _verified(torch.nn.BatchNorm1d(37), x)
    yield "an index", _verified(lambda x, rows: x[rows], x, torch.tensor([0, 3, 3]))
    yield "the device only", _verified(_only_there, x)
    yield "a keyword", _said(gradverify.verify(torch.mul, (moved(x),), kwargs={"other": moved(w)}, checks=("parity",)))
    yield "on the CPU", _said(gradverify.verify(torch.sin, (x,), checks=("parity",)))
    other = replace(bind(torch.sin, [moved(x)], names=["x"]), on_cpu=bind(torch.sin, [2 * x.detach()], names=["x"]))
    yield "other inputs", _of(run_check("parity", other, Settings()))
    yield "a spec", _said(run_case(replace(case("Square", device=NAME), checks=("parity",))))


def _only_there(x: Tensor) -> Tensor:
    if x.device.type == "cpu":
        raise RuntimeError("this kernel runs on a GPU")
    return x * 2


def _rounded() -> Iterator[tuple[str, Said]]:
    """Yield right kernels: in float32 inside on the CPU, in float64 inside on the other device."""
    for subject in plain_subjects():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            inputs = [each.to(dtype).requires_grad_() for each in subject.inputs(*SIZES["odd +1"], Generator())]
            names = [f"x{number}" for number in range(len(inputs))]

            def exact(*given: Tensor, of: Any = subject, to: Any = dtype) -> Tensor:
                return of.reference(*(each.double() for each in given)).to(to)

            problem = bind(exact, moved(inputs), names=names)
            problem = replace(problem, on_cpu=bind(subject.function, inputs, names=names))
            yield f"rounded: {subject.name}, {dtype}", _of(run_check("parity", problem, Settings()))


def _verified(function: Any, *inputs: Tensor) -> Said:
    if isinstance(function, torch.nn.Module):
        function = function.to(NAME)
    return _said(gradverify.verify(function, tuple(map(moved, inputs)), checks=("parity",)))


def _said(result: gradverify.CaseResult) -> Said:
    return _of(result.checks[0])


def _of(found: CheckResult) -> Said:
    return {
        "verdict": found.verdict.value,
        "message": found.message,
        "findings": [finding.message for finding in found.findings],
        "codes": [finding.code for finding in found.findings],
        "wrong": [
            [finding.wrt or finding.of, element.input_index]
            for finding in found.findings
            for element in finding.elements
        ],
    }


if __name__ == "__main__":
    main()
