"""Functions at their kinks and jumps, and at distances of 1e-12 to 1e-3 on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from tests.zoo.specimen import Draw, Specimen, at, normal, specimen

_K = "kink"
_DISTANCES = (1e-12, 1e-8, 1e-5, 1e-3)
_KINKED: tuple[tuple[str, Callable[[Tensor], Tensor], float], ...] = (
    ("relu", functional.relu, 0.0),
    ("abs", torch.abs, 0.0),
    ("leaky relu", functional.leaky_relu, 0.0),
    ("elu", functional.elu, 0.0),
    ("relu of x - 1", lambda x: functional.relu(x - 1), 1.0),
    ("abs of x - 3", lambda x: (x - 3).abs(), 3.0),
    ("clamp below", lambda x: x.clamp(min=0.5), 0.5),
    ("clamp above", lambda x: x.square().clamp(max=4.0), 2.0),
    ("hardtanh", functional.hardtanh, 1.0),
    ("hardsigmoid", lambda x: (x + 3).clamp(0, 6) / 6, 3.0),
    ("hardswish", functional.hardswish, -3.0),
    ("relu6", functional.relu6, 6.0),
    ("softshrink", functional.softshrink, 0.5),
    ("softsign", functional.softsign, 0.0),
    ("huber's joint", lambda x: functional.huber_loss(x, torch.zeros_like(x), reduction="none"), 1.0),
    ("maximum with a constant", lambda x: torch.maximum(x, torch.ones_like(x)), 1.0),
    ("x·|x|", lambda x: x * x.abs(), 0.0),
    ("curved sides", lambda x: torch.where(x < 1, x.square(), x.exp() - 1.7182818284590452), 1.0),
)
_JUMPING: tuple[tuple[str, Callable[[Tensor], Tensor], float], ...] = (
    ("floor", torch.floor, 2.0),
    ("round", torch.round, 0.5),
    ("sign", torch.sign, 0.0),
    ("heaviside times x²", lambda x: torch.where(x > 1, x.square() + 1, x), 1.0),
    ("hardshrink", functional.hardshrink, 0.5),
    ("x mod 1", lambda x: x.remainder(1.0), 3.0),
)
_TOO_NEAR = 1e-12  # distance from a kink that is not at zero: a few thousand ulps, too few for a reliable slope


def _weights(*shape: int) -> Draw:
    """Return a draw of normal numbers that are not differentiated."""
    return lambda generator: torch.randn(shape, generator=generator, dtype=torch.float64)


def _near(table: tuple[tuple[str, Callable[[Tensor], Tensor], float], ...], tag: str) -> Iterator[Specimen]:
    for name, function, place in table:
        for distance in _DISTANCES:
            values = at(place - distance, place + distance)
            title = f"{name}, {distance:g} from its {tag}"
            doubt = ("borderline",) if place and distance <= _TOO_NEAR else ()
            yield specimen(title, function, _K, f"near a {tag}", *doubt, x=values)


def _on() -> Iterator[Specimen]:
    for name, function, place in _KINKED:
        yield specimen(f"{name} on its kink", function, _K, "on a kink", x=at([place]))
    for name, function, place in _JUMPING:
        reason = "the function jumps at the point"
        yield specimen(f"{name} on its jump", function, _K, "on a jump", x=at([place]), inconclusive=reason)


KINKS: tuple[Specimen, ...] = (
    *_near(_KINKED, "kink"),
    *_near(_JUMPING, "jump"),
    *_on(),
    specimen("relu with one zero among ordinary", functional.relu, _K, "on a kink", x=at(1.0, -2.0, 0.0, 0.3)),
    specimen(
        "network of 512 relus",  # its gradient is constant, and jumps close by
        lambda x, w, v: functional.relu(x @ w) @ v,
        _K,
        "order 2",
        x=normal(2, 3),
        w=_weights(3, 512),
        v=_weights(512),
    ),
    specimen("maximum of equals", torch.maximum, _K, "on a kink", x=at(1.0, 2.0), y=at(1.0, 3.0)),
    specimen("maximum of nearly equals", torch.maximum, _K, "near a kink", x=at(1.0, 2.0), y=at(1 + 1e-8, 2 - 1e-8)),
    specimen(
        "minimum nearly equal at 1e-5", torch.minimum, _K, "near a kink", x=at(1.0, 2.0), y=at(1 + 1e-5, 2 - 1e-5)
    ),
    specimen("max with a tie", lambda x: x.max(0).values, _K, "on a kink", x=at(1.0, 3.0, 3.0)),
    specimen("amax with a tie", lambda x: x.amax(), _K, "on a kink", x=at(1.0, 3.0, 3.0)),
    specimen("sort with a tie", lambda x: x.sort().values, _K, "on a kink", x=at(2.0, 1.0, 2.0)),
    specimen("sort nearly tied", lambda x: x.sort().values, _K, "near a kink", x=at(2.0, 1.0, 2 + 1e-9)),
    specimen("median nearly tied", torch.median, _K, "near a kink", x=at(1.0, 1 + 1e-8, 1 - 1e-8)),
    specimen(
        "max pooling with a tie", lambda x: functional.max_pool1d(x, 2), _K, "on a kink", x=at([[1.0, 1.0, 2.0, 3.0]])
    ),
    specimen(
        "max pooling nearly tied",
        lambda x: functional.max_pool1d(x, 2),
        _K,
        "near a kink",
        x=at([[1.0, 1 + 1e-9, 2.0, 3.0]]),
    ),
    # torch's second derivative of a norm at zero is nan
    specimen("2-norm at zero", torch.linalg.vector_norm, _K, "on a kink", "wrong at order 2", x=at(0.0, 0.0)),
    specimen("2-norm at 1e-12", torch.linalg.vector_norm, _K, "near a kink", x=at(1e-12, -2e-12)),
    specimen("2-norm at 1e-8", torch.linalg.vector_norm, _K, "near a kink", x=at(1e-8, -2e-8)),
    specimen("2-norm with one coordinate at zero", torch.linalg.vector_norm, _K, x=at(0.0, 3.0)),
    specimen("1-norm with zeros", lambda x: x.norm(1), _K, "on a kink", x=at(0.0, 3.0, 0.0)),
    specimen("max norm", lambda x: x.norm(float("inf")), _K, x=at(1.0, -3.0, 2.0)),
    specimen(
        "norm of a zero row beside another",
        lambda x: x.norm(dim=1),
        _K,
        "on a kink",
        "wrong at order 2",
        x=at([0.0, 0.0], [3.0, 4.0]),
    ),
    specimen("normalised 1e-3 from zero", lambda x: functional.normalize(x, dim=0), _K, x=at(1e-3, 2e-3)),
    specimen(
        "relu of a sum at zero",
        lambda x, w: functional.relu(x @ w),
        _K,
        "on a kink",
        x=at(1.0, -1.0),
        w=at([1.0, 2.0], [1.0, 1.0]),
    ),
    specimen(
        "relu network",
        lambda x, w, v: functional.relu(functional.relu(x @ w) @ v),
        _K,
        x=at([0.5, -0.2]),
        w=at([1.0, -0.3], [0.2, 0.9]),
        v=at([0.4], [-1.0]),
    ),
    specimen("kink beside a steep side", lambda x: functional.relu(x) + 1e3 * x, _K, "on a kink", x=at([0.0])),
    specimen("weak kink", lambda x: x + 1e-6 * x.abs(), _K, "on a kink", x=at(0.0, 1e-5, -1e-5)),
    specimen(
        "weak kink in a large function",
        lambda x: (x + 2).exp() + 1e-4 * x.abs(),
        _K,
        "near a kink",
        x=at(1e-6, -1e-6, 1e-3),
    ),
    specimen("many kinks", lambda x: (x * 20).sin().abs(), _K, x=at(0.3, 1.0, -0.7)),
    specimen("staircase with slope", lambda x: x + x.floor() * 0.1, _K, "near a jump", x=at(2.0001, 1.999, 0.5)),
    specimen("triangle wave", lambda x: (x - x.round()).abs(), _K, x=at(0.25, 0.4999, 1.001)),
    specimen("clamped on both sides far away", lambda x: x.clamp(-1, 1), _K, x=at(5.0, -7.0, 0.3)),
    specimen(
        "piecewise cubic joint with equal slopes",
        lambda x: torch.where(x > 1, x**3, 3 * x - 2),
        _K,
        x=at(1.0, 1 + 1e-6, 1 - 1e-6),
    ),
    specimen("|x|^1.5 at zero", lambda x: x.abs() ** 1.5, _K, x=at([0.0])),
    specimen("|x|^1.5 at 1e-6", lambda x: x.abs() ** 1.5, _K, x=at(1e-6, -1e-6)),
)
