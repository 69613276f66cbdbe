"""Gradients in float32 and bfloat16 that depend on rounding: branches, and norms of nearly equal values."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from tests.zoo.specimen import Draw, Specimen, at, specimen
from tests.zoo.wrong import Wrong, with_backward, wrong

_L = "low precision"
_DTYPES = (("float32", torch.float32), ("bfloat16", torch.bfloat16))
_APART = (1.0, 0.3, 0.1, 0.03, 0.003, 0.0)


def _sums(x: Tensor) -> Tensor:
    return x[:, 0] + x[:, 1] + x[:, 2]


def _masked(g: Tensor, x: Tensor, factor: float = 1.0) -> Tensor:
    return factor * ((_sums(x) > 0).to(g.dtype) * g).unsqueeze(1).expand_as(x)


def _rows(*rows: tuple[float, ...], dtype: torch.dtype) -> Draw:
    return lambda generator: torch.tensor(rows, dtype=dtype).requires_grad_()


def _norms() -> Iterator[Specimen]:
    for title, dtype in _DTYPES:
        for apart in _APART:
            x = _rows((0.6, 0.6 + apart), (0.6 - apart, 0.6), dtype=dtype)
            yield specimen(
                f"{title} layer norm of two values, {apart:g} apart",
                lambda x: functional.layer_norm(x, (2,)),
                _L, title, "borderline", "open at order 2", x=x,
            )  # fmt: skip
            yield specimen(
                f"{title} batch norm of two values, {apart:g} apart",
                lambda x: functional.batch_norm(x.mT, None, None, training=True),
                _L, title, "borderline", "open at order 2", x=x,
            )  # fmt: skip


def _normalised(x: Tensor) -> Tensor:
    normed = (x - x.mean()) * (x.var() + 1e-5).rsqrt()
    return functional.gelu(normed.float().double())


def _weights(q: Tensor, k: Tensor) -> Tensor:
    """Return the weights of attention."""
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)


def _weights_backward(g: Tensor, q: Tensor, k: Tensor, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """Where one weight is almost 1, the two terms cancel, and rounding is all that remains."""
    p = _weights(q, k)
    scores = factor * p * (g - (g * p).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
    return scores @ k, scores.mT @ q


def _scores(scale: float, seed: int, number: int) -> Draw:
    """Return a draw of the first or the second of two matrices, the same for every seed of the zoo."""

    def draw(generator: torch.Generator) -> Tensor:
        own = torch.Generator().manual_seed(seed)
        both = [torch.randn(3, 3, generator=own) for _ in range(2)]
        return (scale * both[number]).requires_grad_()

    return draw


# In bfloat16 1 + 2^-9 rounds to 1, and in float32 1 + 2^-25: the first row's sum is 0 there and positive in float64.
_BRANCH = {
    "float32": _rows((1.0, 2.0**-25, -1.0), (1.0, 2.0, 0.5), dtype=torch.float32),
    "bfloat16": _rows((1.0, 2.0**-9, -1.0), (1.0, 2.0, 0.5), dtype=torch.bfloat16),
}

LOW_PRECISION: tuple[Specimen, ...] = (
    *(
        specimen(
            f"float32 attention weights of scores {scale:g} apart, {seed}",
            with_backward(_weights, _weights_backward), _L, "float32", "open at order 2",
            q=_scores(scale, seed, 0), k=_scores(scale, seed, 1),
        )
        for scale, seed in ((1.0, 4), (3.0, 8), (3.0, 15), (6.0, 12))
    ),
    specimen(
        "two numbers normalised and rounded to float32", _normalised, _L, "open at order 2", x=at(19.75, 99.68),
    ),
    specimen(
        "straight line and a float16 sine", lambda x: 3 * x + 0.026 * (0.023 * x + 1.2).half().sin().double(), _L,
        "open at order 2", x=at([0.61]),
    ),
    *(
        specimen(
            f"{title} branch that rounding decides",
            with_backward(lambda x: _sums(x).relu(), _masked),
            _L, title, "on a kink", "borderline", x=draw,
        )
        for title, draw in _BRANCH.items()
    ),
    *_norms(),
)  # fmt: skip

WRONG_LOW_PRECISION: tuple[Wrong, ...] = (
    wrong(
        "float32 attention weights, scores doubled",
        with_backward(_weights, lambda g, q, k: _weights_backward(g, q, k, 2.0)), "q", (0, 0), (0, 0), _L, "float32",
        q=_scores(1.0, 4, 0), k=_scores(1.0, 4, 1),
    ),
    *(
        wrong(
            f"{title} branch that rounding decides, tripled",
            with_backward(lambda x: _sums(x).relu(), lambda g, x: _masked(g, x, 3.0)),
            "x", (1,), (1, 0), _L, title, x=draw,
        )
        for title, draw in _BRANCH.items()
    ),
    *(
        wrong(
            f"{title} threshold in the wrong place",
            with_backward(torch.relu, lambda g, x: g * (x > 0.1)),
            "x", (1,), (1,), _L, title, x=at(0.0996, 0.05, 0.7, dtype=dtype),
        )
        for title, dtype in _DTYPES
    ),
    *(
        wrong(
            f"{title} zero that float64 does not claim",
            with_backward(lambda x: x**3, lambda g, x: g * (3 * x * x if x.dtype is torch.float64 else 0 * x)),
            "x", (0,), (0,), _L, title, x=at(0.015, -0.003, 0.02, dtype=dtype),
        )
        for title, dtype in _DTYPES
    ),
)  # fmt: skip
