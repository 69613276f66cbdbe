"""What it costs to observe a call: `python -m benchmarks.recording`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gradverify.author.recording.observing import observed

_SIZES = ((16,), (1000, 1000))  # of the tensor that is passed
_FIRST, _LATER, _ROUNDS = 20, 2000, 9


class Nothing(torch.autograd.Function):
    """Returns a view, so that a call costs what torch itself needs."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, scale: float) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def main() -> None:
    """Print the time of a call without and with an observer, in microseconds."""
    torch.set_num_threads(1)
    print("tensor       not observed   first 20 calls   later calls")
    for size in _SIZES:
        x = torch.randn(size, requires_grad=True)
        plain = _median(lambda x=x: _timed(x, _LATER, observe=False)[1])
        first = _median(lambda x=x: _timed(x, _LATER, observe=True)[0])
        later = _median(lambda x=x: _timed(x, _LATER, observe=True)[1])
        print(f"{'x'.join(map(str, size)):10} {plain:11.1f} µs {first:13.0f} µs {later:10.1f} µs")

    x = torch.randn(16)
    plain, later = (_median(lambda each=each: _of_torch(x, observe=each)) for each in (False, True))
    print(f"an operator of torch through torch.ops: {plain:.2f} µs, observed {later:.2f} µs")


def _of_torch(x: torch.Tensor, *, observe: bool) -> float:
    """Return microseconds per call of an operator that is not noted."""
    with TemporaryDirectory() as notes, observed(Path(notes), keeps_values=False) if observe else nullcontext():
        started = time.perf_counter()
        for _ in range(_LATER):
            torch.ops.aten.alias.default(x)
        return (time.perf_counter() - started) / _LATER * 1e6


def _timed(x: torch.Tensor, calls: int, *, observe: bool) -> tuple[float, float]:
    """Return microseconds per call: of the first ones and of the later ones."""
    with TemporaryDirectory() as notes, observed(Path(notes), keeps_values=False) if observe else nullcontext():
        times = [_per_call(x, _FIRST), _per_call(x, calls)]
    return times[0], times[1]


def _per_call(x: torch.Tensor, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        Nothing.apply(x, 2.0)
    return (time.perf_counter() - started) / calls * 1e6


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(_ROUNDS))


if __name__ == "__main__":
    main()
