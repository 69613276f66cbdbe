"""Judge gradients of large inputs in every precision: `python -m benchmarks.large [-k TEXT] [--dtype NAME …]`.

The Jacobians have 10⁷ to 10¹² entries, so that random sums over all of them are compared. Each function of torch is
judged right, and with its gradient changed: one entry of it larger by half, its last slice zero, all of it larger by
30 %, and one entry larger by half in low precision only. What passes beside a printed detection limit above the error
counts as below the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.record import Row, Standing, Total, judged_row, standing_of_right
from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.deadline import deadline_in
from gradverify.evidence import undiagnosed
from gradverify.result import CheckResult, Verdict

_DTYPES = ("float64", "float32", "bfloat16", "float16")
_LIMIT = 60.0  # seconds for one check
_LARGER = 1.5  # times what a wrong entry should be
_ALONE = Settings(torch_gradcheck=TorchGradcheck.NEVER)
Change = Callable[[Tensor], Tensor]  # the right gradient by the first input, which may be overwritten -> the wrong one


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """A function of large inputs, which are drawn from the standard normal distribution, times a scale."""

    name: str
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    scales: tuple[float, ...] = ()  # of the inputs, 1 where none is given


def _entry(gradient: Tensor) -> Tensor:
    gradient.view(-1)[-1] *= _LARGER
    return gradient


def _slice(gradient: Tensor) -> Tensor:
    gradient[..., -1] = 0
    return gradient


def _low_only(gradient: Tensor) -> Tensor:
    return gradient if gradient.dtype is torch.float64 else _entry(gradient)


CHANGES: dict[str, Change] = {
    "right": torch.clone,
    "one entry": _entry,
    "last slice": _slice,
    "all": lambda gradient: 1.3 * gradient,
    "one entry in low precision": _low_only,
}


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)


def _cross_entropy(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1], reduction="none")


LARGE = (
    Large(name="layer norm", function=_layer_norm, shapes=((37, 11, 515), (515,), (515,))),
    Large(
        name="rms norm",
        function=lambda x, w: functional.rms_norm(x, (x.shape[-1],), w),
        shapes=((37, 11, 515), (515,)),
    ),
    Large(
        name="group norm",
        function=lambda x, w, b: functional.group_norm(x, 5, w, b),
        shapes=((7, 35, 17, 19), (35,), (35,)),
    ),
    Large(
        name="batch norm",
        function=lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        shapes=((13, 35, 17, 9), (35,), (35,)),
    ),
    Large(name="softmax", function=lambda x: x.softmax(-1), shapes=((61, 3001),), scales=(3.0,)),
    Large(name="cross entropy", function=_cross_entropy, shapes=((601, 701),), scales=(3.0,)),
    Large(name="attention", function=_attention, shapes=((2, 3, 67, 48),) * 3),
    Large(
        name="feed forward",
        function=lambda x, up, down: functional.gelu(x @ up) @ down,
        shapes=((129, 65), (65, 257), (257, 33)),
        scales=(1.0, 0.125, 0.0625),
    ),
    Large(name="linear and relu", function=lambda x, w: functional.relu(x @ w.T), shapes=((129, 65), (255, 65))),
    Large(
        name="conv2d",
        function=lambda x, w, b: functional.conv2d(x, w, b, padding=1),
        shapes=((3, 17, 31, 29), (23, 17, 3, 3), (23,)),
        scales=(1.0, 0.08),
    ),
    Large(name="bmm", function=torch.bmm, shapes=((6, 65, 77), (6, 77, 51))),
    Large(name="logsumexp", function=lambda x: x.logsumexp(0), shapes=((2001, 333),), scales=(2.0,)),
    Large(name="normalize", function=lambda x: functional.normalize(x, dim=-1), shapes=((301, 513),)),
    Large(name="cosine similarity", function=functional.cosine_similarity, shapes=((301, 513),) * 2),
    Large(name="distances", function=torch.cdist, shapes=((201, 33), (171, 33))),
    Large(name="standard deviation", function=lambda x: x.std(0), shapes=((2001, 333),)),
    Large(name="cumulative sum", function=lambda x: x.cumsum(0), shapes=((2001, 301),)),
    Large(name="glu", function=functional.glu, shapes=((101, 1702),)),
    Large(name="squared errors", function=lambda x, y: (x - y).square().mean(-1), shapes=((501, 451),) * 2),
    Large(name="embedding", function=lambda w: w[torch.arange(2000) % 401], shapes=((401, 129),)),
)


def main() -> None:
    """Print a line for each function, precision and change, and the standings."""
    parser = parser_of(__doc__)
    parser.add_argument("-k", default="", metavar="TEXT", help="functions whose name contains TEXT")
    parser.add_argument("--dtype", action="append", choices=_DTYPES, help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parsed_options(parser)
    rows: list[Row] = []
    print(f"{'function':20} {'dtype':9} {'gradient':27} {'verdict':13} {'seconds':>7}  detection limit")
    for large in (each for each in LARGE if options.k in each.name):
        for dtype in options.dtype or _DTYPES:
            for change in CHANGES:
                begin = time.perf_counter()
                result = _judged(large, dtype, change, options.seed)
                took = time.perf_counter() - begin
                rows.append(judged_row(f"{large.name}, {dtype}, {change}", result, standing(change, dtype, result)))
                limit = "" if result.detection_limit is None else f"{result.detection_limit:.0e}"
                print(
                    f"{large.name:20} {dtype:9} {change:27} {result.verdict.value:13} {took:7.1f}  {limit}", flush=True
                )
    totals = [Total(name=f"{each.value}", value=sum(row.standing is each for row in rows)) for each in Standing]
    print(", ".join(f"{total.name} {total.value:g}" for total in totals if total.value))
    save("large", options, rows)


def standing(change: str, dtype: str, result: CheckResult) -> Standing:
    """Return how good a verdict is on a gradient with this change."""
    if change == "right" or (CHANGES[change] is _low_only and dtype == "float64"):
        return standing_of_right(result.verdict)
    if result.verdict is Verdict.FAIL:
        return Standing.RIGHT
    if result.verdict is Verdict.PASS:
        # In low precision only, whole gradients are held to the tolerance, and not single entries.
        is_below = CHANGES[change] is _low_only or (result.detection_limit or 0.0) > _LARGER - 1
        return Standing.BELOW_LIMIT if is_below else Standing.MISSED
    return Standing.INCONCLUSIVE if result.verdict is Verdict.INCONCLUSIVE else Standing.ERROR


def _judged(large: Large, dtype: str, change: str, seed: int) -> CheckResult:
    generator = torch.Generator().manual_seed(seed)
    wanted: torch.dtype = getattr(torch, dtype)
    scales = (*large.scales, *[1.0] * len(large.shapes))
    inputs = [
        (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(wanted).requires_grad_()
        for shape, scale in zip(large.shapes, scales, strict=False)
    ]
    names = [f"x{place}" for place in range(len(inputs))]
    problem = bind(_changed(large.function, CHANGES[change]).apply, inputs, names=names, name=large.name)
    return run_check("gradcheck", replace(problem, deadline=deadline_in(_LIMIT)), _ALONE, undiagnosed)


def _changed(function: Callable[..., Tensor], change: Change) -> type[Function]:
    """Return the function with its gradient by the first input changed."""

    class Changed(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            with torch.no_grad():
                return function(*inputs)

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
            inputs = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            with torch.enable_grad():
                first, *others = torch.autograd.grad(function(*inputs), inputs, cotangent)
            return change(first.contiguous()), *others

    return Changed


if __name__ == "__main__":
    main()
