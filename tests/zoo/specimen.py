"""One animal of the zoo: a function whose derivative is right, and the point at which it is looked at.

Tags say what may be expected: "borderline" specimens may pass or stay inconclusive, and those "wrong at order 2" have
a backward that is right but cannot be differentiated rightly. Those "open at order 2" have a gradient that jumps or is
mostly rounding, so that their second derivative may stay inconclusive. "order 2" has the tests look at that, too.
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
    names: tuple[str, ...]  # of the arguments
    tags: frozenset[str] = frozenset()
    inconclusive: str = ""  # why no more than "inconclusive" can be said, where that is so
    exact: Exact | None = None  # (*arguments) -> the (m, n) Jacobian; None: what autograd makes of the composite

    def allows(self, verdict: Verdict) -> bool:
        """Tell whether gradcheck may come to this verdict."""
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
    """Return a specimen; every keyword names an argument and says how it is drawn, or is passed on as it is."""

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
    """Draw shift + scale·N(0, 1)."""

    def draw(generator: torch.Generator) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale + shift
        return values.to(dtype).requires_grad_()

    return draw


def uniform(low: float, high: float, *shape: int) -> Draw:
    """Draw uniformly from [low, high)."""

    def draw(generator: torch.Generator) -> Tensor:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).requires_grad_()

    return draw


def complex_normal(*shape: int) -> Draw:
    """Draw complex standard normal values."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).requires_grad_()

    return draw


def spread(low: float, high: float, count: int) -> Draw:
    """Draw values of both signs whose magnitudes are spread evenly over the decades between `low` and `high`."""

    def draw(generator: torch.Generator) -> Tensor:
        exponents = torch.linspace(float(torch.tensor(low).log10()), float(torch.tensor(high).log10()), count)
        signs = torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)
        return (10.0 ** exponents.double() * signs).requires_grad_()

    return draw


def at(*values: Any, dtype: torch.dtype = torch.float64) -> Draw:
    """Give exactly these values; a single number makes a 0-dim tensor."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype).requires_grad_()

    return draw


def fixed(*values: Any, dtype: torch.dtype | None = None) -> Draw:
    """Give exactly these values as a tensor that is not differentiated."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype)

    return draw


def integers(high: int, *shape: int) -> Draw:
    """Draw integers from [0, high), not differentiated."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    return draw


def diagonal(derivative: Callable[[Tensor], Tensor]) -> Exact:
    """Return the exact Jacobian of an elementwise function of one argument."""

    def exact(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.diag(derivative(x.detach()).reshape(-1))

    return exact
