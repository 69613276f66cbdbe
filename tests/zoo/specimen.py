"""One specimen of the zoo: a function with a right backward, and the point at which it is checked.

Tags describe the expected verdicts. A "borderline" specimen may pass or be inconclusive. One "wrong at order 2" has a
right backward whose own derivative is wrong. One "open at order 2" has a gradient that jumps or is mostly rounding, so
its second derivative may be inconclusive. The tests check a specimen tagged "order 2" at order 2 as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.result import Verdict

Draw = Callable[[torch.Generator], Any]
Exact = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A right function with inputs; tensors that require grad are differentiated."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]  # seed -> positional arguments
    names: tuple[str, ...]  # names of the arguments
    tags: frozenset[str] = frozenset()
    inconclusive: str = ""  # why the verdict must be inconclusive, "" if it must be pass
    exact: Exact | None = None  # (*arguments) -> (m, n) Jacobian; None if autograd's is exact

    def allows(self, verdict: Verdict) -> bool:
        """Return True if gradcheck may return this verdict."""
        if "borderline" in self.tags:
            return verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
        return verdict is (Verdict.INCONCLUSIVE if self.inconclusive else Verdict.PASS)


def specimen(
    name: str,
    function: Callable[..., Any],
    *tags: str,
    inconclusive: str = "",
    exact: Exact | None = None,
    **draws: Any,
) -> Specimen:
    """Return a specimen; each keyword in `draws` is an argument, a Draw or a value that is passed unchanged."""

    def inputs(seed: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(draw(generator) if callable(draw) else draw for draw in draws.values())

    return Specimen(
        name=name,
        function=function,
        inputs=inputs,
        names=tuple(draws),
        tags=frozenset(tags),
        inconclusive=inconclusive,
        exact=exact,
    )


def normal(*shape: int, scale: float = 1.0, shift: float = 0.0, dtype: torch.dtype = torch.float64) -> Draw:
    """Return a draw from shift + scale·N(0, 1)."""

    def draw(generator: torch.Generator) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale + shift
        return values.to(dtype).requires_grad_()

    return draw


def uniform(low: float, high: float, *shape: int) -> Draw:
    """Return a draw from the uniform distribution on [low, high)."""

    def draw(generator: torch.Generator) -> Tensor:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).requires_grad_()

    return draw


def complex_normal(*shape: int) -> Draw:
    """Return a draw of complex standard normal values."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).requires_grad_()

    return draw


def spread(low: float, high: float, count: int) -> Draw:
    """Return a draw of values with random signs and magnitudes spaced logarithmically from `low` to `high`."""

    def draw(generator: torch.Generator) -> Tensor:
        exponents = torch.linspace(float(torch.tensor(low).log10()), float(torch.tensor(high).log10()), count)
        signs = torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)
        return (10.0 ** exponents.double() * signs).requires_grad_()

    return draw


def at(*values: Any, dtype: torch.dtype = torch.float64) -> Draw:
    """Return a draw of exactly these values; a single number makes a 0-dim tensor."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype).requires_grad_()

    return draw


def fixed(*values: Any, dtype: torch.dtype | None = None) -> Draw:
    """Return a draw of exactly these values, not differentiated."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype)

    return draw


def integers(high: int, *shape: int) -> Draw:
    """Return a draw of integers from [0, high), not differentiated."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    return draw


def diagonal(derivative: Callable[[Tensor], Tensor]) -> Exact:
    """Return the exact Jacobian of an elementwise function of one argument."""

    def exact(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.diag(derivative(x.detach()).reshape(-1))

    return exact
