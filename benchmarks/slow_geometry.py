"""Rotations and their logarithms one after the other, and rays that march to a surface."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward
from tests.zoo.specimen import Draw, at, normal


class RotationExp(Function):
    """Rotation matrices of rotation vectors (n, 3), by the formula of Rodrigues; twice differentiable."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return torch.stack([_rodrigues(each, *_coefficients(each.norm())[:2]) for each in v])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        return torch.stack(
            [_rotation_gradient(*each, _coefficients(each[0].norm())) for each in zip(v, g, strict=True)]
        )


def _constant_angle(ctx: Any, g: Tensor) -> Tensor:
    (v,) = ctx.saved_tensors
    return torch.stack(
        [
            _rotation_gradient(
                *each, (*_coefficients(each[0].norm())[:2], each[0].new_zeros(()), each[0].new_zeros(()))
            )
            for each in zip(v, g, strict=True)
        ]
    )


def _short_series(ctx: Any, g: Tensor) -> Tensor:
    (v,) = ctx.saved_tensors
    return torch.stack([_rotation_gradient(*each, _series(each[0].norm())) for each in zip(v, g, strict=True)])


def _coefficients(angle: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a = sin θ/θ, b = (1 - cos θ)/θ², a'/θ and b'/θ."""
    a, b = angle.sin() / angle, (1 - angle.cos()) / angle**2
    return a, b, (angle.cos() - a) / angle**2, (a - 2 * b) / angle**2


def _series(angle: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same by series for small angles, four terms each."""
    powers = [angle ** (2 * k) for k in range(4)]
    sizes = [(-1) ** k * power for k, power in enumerate(powers)]
    return tuple(
        torch.stack([size / math.factorial(2 * k + shift) for k, size in enumerate(sizes)]).sum()
        if not down
        else -torch.stack(
            [size * 2 * (k + 1) / math.factorial(2 * k + 2 + shift) for k, size in enumerate(sizes)]
        ).sum()
        for shift, down in ((1, False), (2, False), (1, True), (2, True))
    )


def _cross(v: Tensor) -> Tensor:
    zero = torch.zeros_like(v[0])
    return torch.stack([zero, -v[2], v[1], v[2], zero, -v[0], -v[1], v[0], zero]).reshape(3, 3)


def _uncrossed(k: Tensor) -> Tensor:
    return torch.stack([k[2, 1] - k[1, 2], k[0, 2] - k[2, 0], k[1, 0] - k[0, 1]])


def _rodrigues(v: Tensor, a: Tensor, b: Tensor) -> Tensor:
    k = _cross(v)
    return torch.eye(3, dtype=v.dtype) + a * k + b * k @ k


def _rotation_gradient(v: Tensor, g: Tensor, coefficients: tuple[Tensor, ...]) -> Tensor:
    a, b, by_a, by_b = coefficients
    k = _cross(v)
    by_k = a * g + b * (k.T @ g + g @ k.T)
    return _uncrossed(by_k) + v * (by_a * (g * k).sum() + by_b * (g * (k @ k)).sum())


def _rotations(v: Tensor) -> Tensor:
    return torch.stack([torch.linalg.matrix_exp(_cross(each)) for each in v])


class RotationLog(Function):
    """Rotation vectors of rotation matrices (n, 3, 3), from their traces and skew parts."""

    @staticmethod
    def forward(ctx: Any, r: Tensor) -> Tensor:
        ctx.save_for_backward(r)
        found = []
        for each in r:
            angle = math.acos((float(each.trace()) - 1) / 2)
            found.append(_uncrossed(each) * (angle / (2 * math.sin(angle))))
        return torch.stack(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return _log_gradient(ctx.saved_tensors[0], g, 1.0, 0.0)


@once_differentiable
def _constant_trace(ctx: Any, g: Tensor) -> Tensor:
    return _log_gradient(ctx.saved_tensors[0], g, 0.0, 0.0)


@once_differentiable
def _sine_with_epsilon(ctx: Any, g: Tensor) -> Tensor:
    return _log_gradient(ctx.saved_tensors[0], g, 1.0, 1e-6)


def _log_gradient(r: Tensor, g: Tensor, by_trace: float, epsilon: float) -> Tensor:
    found = []
    for each, cotangent in zip(r, g, strict=True):
        angle = ((each.trace() - 1) / 2).acos()
        sine = angle.sin() + epsilon
        slope = (1 - angle * angle.cos() / sine) / (2 * sine) * (-1 / (2 * sine))
        diagonal = by_trace * slope * (_uncrossed(each) @ cotangent) * torch.eye(3, dtype=r.dtype)
        found.append(diagonal + angle / (2 * sine) * _cross(cotangent))
    return torch.stack(found)


def _logarithms(r: Tensor) -> Tensor:
    angle = ((r.diagonal(dim1=1, dim2=2).sum(1) - 1) / 2).acos()
    return torch.stack([_uncrossed(each) for each in r]) * (angle / (2 * angle.sin()))[:, None]


class SphereTracing(Function):
    """Distance along rays to a wavy sphere, by marching; the gradient is implicit and twice differentiable."""

    @staticmethod
    def forward(ctx: Any, origin: Tensor, directions: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
        return _marched(ctx, origin, directions, centre, radius, 1e-15)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        origin, directions, centre, _, t = ctx.saved_tensors
        to_place, normal_ = _surface(origin, directions, centre, t)
        scaled = -g / (normal_ * directions).sum(1)
        moved = scaled[:, None] * normal_
        by_centre = -(scaled[:, None] * to_place / to_place.norm(dim=1, keepdim=True)).sum(0)
        return moved.sum(0), t[:, None] * moved, by_centre, -scaled.sum()


class LooseSphereTracing(SphereTracing):
    """Stops within 1e-5 of the surface."""

    @staticmethod
    def forward(ctx: Any, origin: Tensor, directions: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
        return _marched(ctx, origin, directions, centre, radius, 1e-5)


def _without_distance(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
    by_origin, by_directions, by_centre, by_radius = SphereTracing.backward(ctx, g)
    return by_origin, by_directions / ctx.saved_tensors[4][:, None], by_centre, by_radius


def _marched(ctx: Any, origin: Tensor, directions: Tensor, centre: Tensor, radius: Tensor, near: float) -> Tensor:
    t = torch.zeros_like(directions[:, 0])
    for _ in range(200):
        place = origin + t[:, None] * directions
        distance = (place - centre).norm(dim=1) - radius + 0.05 * (3 * place).sin().sum(1)
        t = t + 0.8 * distance
        if distance.abs().max() <= near:
            break
    ctx.save_for_backward(origin, directions, centre, radius, t)
    return t


def _surface(origin: Tensor, directions: Tensor, centre: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors from the centre to the places that the rays hit, and the gradients of the distance there."""
    place = origin + t[:, None] * directions
    to_place = place - centre
    return to_place, to_place / to_place.norm(dim=1, keepdim=True) + 0.15 * (3 * place).cos()


def _rays(origin: Tensor, directions: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    t = torch.zeros_like(directions[:, 0])
    for _ in range(120):
        place = origin + t[:, None] * directions
        t = t + 0.8 * ((place - centre).norm(dim=1) - radius + 0.05 * (3 * place).sin().sum(1))
    return t


def _near_rotations(count: int) -> Draw:
    return lambda generator: _rotations(normal(count, 3, scale=0.8)(generator).detach()).requires_grad_()


def _forward_rays(count: int) -> Draw:
    aim = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    return lambda generator: (aim + normal(count, 3, scale=0.1)(generator).detach()).requires_grad_()


GEOMETRY = (
    slow(
        "rotation exp",
        RotationExp,
        one_entry=((1, 0, 1), "v", (1, 2)),
        throughout=with_backward(RotationExp, _constant_angle),
        approximate=with_backward(RotationExp, _short_series),
        plain=_rotations,
        v=normal(4, 3, scale=0.5),
    ),
    slow(
        "rotation log",
        RotationLog,
        one_entry=((0, 0), "r", (0, 1, 2)),
        throughout=with_backward(RotationLog, _constant_trace),
        approximate=with_backward(RotationLog, _sine_with_epsilon),
        plain=_logarithms,
        r=_near_rotations(3),
    ),
    slow(
        "sphere tracing",
        SphereTracing,
        one_entry=((1,), "centre", (1,)),
        throughout=with_backward(SphereTracing, _without_distance),
        approximate=LooseSphereTracing,
        plain=_rays,
        origin=at(0.1, -0.2, -3.0),
        directions=_forward_rays(4),
        centre=at(0.0, 0.1, 0.3),
        radius=at(1.2),
    ),
)
