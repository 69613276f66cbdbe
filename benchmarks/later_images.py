"""More hidden mistakes: patches, sampling, compositing and rotations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform

_MOST_OPAQUE = 0.99  # so that some light always passes


class ImagePatches(Function):
    """Square patches of an image, row by row: (h, w) -> (h / size * w / size, size**2)."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, size: int) -> Tensor:
        if image.dim() != 2 or size < 1 or any(n % size for n in image.shape):
            raise ValueError("image must be (h, w) with h and w multiples of size")
        ctx.grid = image.shape[0] // size, image.shape[1] // size
        ctx.size = size
        rows, columns = ctx.grid
        return image.reshape(rows, size, columns, size).transpose(1, 2).reshape(rows * columns, size**2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows, columns = ctx.grid
        return _folded(grad, rows, columns, ctx.size), None


class ImagePatchesSwapped(ImagePatches):
    """Backward folds an image as wide as the one in forward is high."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows, columns = ctx.grid
        return _folded(grad, columns, rows, ctx.size).reshape(rows * ctx.size, columns * ctx.size), None


def _folded(patches: Tensor, rows: int, columns: int, size: int) -> Tensor:
    return patches.reshape(rows, columns, size, size).transpose(1, 2).reshape(rows * size, columns * size)


class GridSample(Function):
    """Bilinear samples of an image (h, w) at places (m, 2) in [-1, 1], x first; outside its border counts: (m,)."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, places: Tensor) -> Tensor:
        if image.dim() != 2 or not image.numel() or places.dim() != 2 or places.shape[1] != 2:
            raise ValueError("image must be (h, w) and not empty, places (m, 2)")
        ctx.save_for_backward(image, places)
        corners, shares = _cell(places, image.shape)
        values = image[corners[..., 1].unsqueeze(1), corners[..., 0].unsqueeze(2)]
        return (shares[..., 1].unsqueeze(1) * shares[..., 0].unsqueeze(2) * values).sum((1, 2))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        image, places = ctx.saved_tensors
        pixel = _pixel(places, image.shape)
        inside = (pixel >= 0) & (pixel <= _last(image.shape))
        of_image, of_places = _grid_sample_vjp(grad, image, places)
        return of_image, of_places * inside


class GridSampleUnclipped(GridSample):
    """Places outside of the image take the slope at its border."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        image, places = ctx.saved_tensors
        return _grid_sample_vjp(grad, image, places)


def _last(shape: torch.Size) -> Tensor:
    return torch.tensor([shape[1] - 1, shape[0] - 1])


def _pixel(places: Tensor, shape: torch.Size) -> Tensor:
    return ((places + 1) * (_last(shape) + 1) - 1) / 2


def _cell(places: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Return the two pixels of each sample along x and y, and their shares, both (m, 2, 2)."""
    last = _last(shape)
    pixel = _pixel(places, shape).clamp(min=0).minimum(last)
    low = pixel.floor()
    corners = torch.stack([low, (low + 1).minimum(last)], 1).long()
    return corners, torch.stack([1 - (pixel - low), pixel - low], 1)


def _grid_sample_vjp(grad: Tensor, image: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    corners, shares = _cell(places, image.shape)
    rows, columns = corners[..., 1].unsqueeze(1), corners[..., 0].unsqueeze(2)
    of_rows, of_columns = shares[..., 1].unsqueeze(1), shares[..., 0].unsqueeze(2)
    values = grad[:, None, None] * image[rows, columns]
    of_x = (values[:, 1] - values[:, 0]).mul(shares[..., 1]).sum(1) * image.shape[1] / 2
    of_y = (values[..., 1] - values[..., 0]).mul(shares[..., 0]).sum(1) * image.shape[0] / 2
    of_image = torch.zeros_like(image).index_put_((rows, columns), grad[:, None, None] * of_rows * of_columns, True)
    return of_image, torch.stack([of_x, of_y], 1)


class SplatCompositing(Function):
    """Colour of a ray through splats from front to back: opacity (n,), distance (n,), colour (n, c) -> (c,)."""

    @staticmethod
    def forward(ctx: Any, opacity: Tensor, distance: Tensor, colour: Tensor) -> Tensor:
        if opacity.dim() != 1 or distance.shape != opacity.shape or colour.dim() != 2 or len(colour) != len(opacity):
            raise ValueError("opacity and distance must be (n,), colour (n, c)")
        density = (-distance.square() / 2).exp()
        alpha = (opacity * density).clamp(max=_MOST_OPAQUE)
        ctx.save_for_backward(opacity, distance, colour, density, alpha)
        return (alpha * _light(alpha)) @ colour

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        opacity, distance, colour, density, alpha = ctx.saved_tensors
        of_alpha = _alpha_vjp(grad, colour, alpha) * (opacity * density <= _MOST_OPAQUE)
        of_distance = -of_alpha * opacity * density * distance
        return of_alpha * density, of_distance, torch.outer(alpha * _light(alpha), grad)


class SplatCompositingUnclamped(SplatCompositing):
    """Splats whose alpha is clamped pass a gradient on."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        opacity, distance, colour, density, alpha = ctx.saved_tensors
        of_alpha = _alpha_vjp(grad, colour, alpha)
        of_distance = -of_alpha * opacity * density * distance
        return of_alpha * density, of_distance, torch.outer(alpha * _light(alpha), grad)


def _light(alpha: Tensor) -> Tensor:
    """Return the share of light that gets past the splats in front of each one, (n,)."""
    return torch.cat([alpha.new_ones(1), (1 - alpha).cumprod(0)])[:-1]


def _alpha_vjp(grad: Tensor, colour: Tensor, alpha: Tensor) -> Tensor:
    light = _light(alpha)
    seen = colour @ grad
    parts = alpha * light * seen
    behind = parts.flip(0).cumsum(0).flip(0) - parts
    return light * seen - behind / (1 - alpha)


class RotationMatrix(Function):
    """Rotations by vectors whose direction is the axis and whose length the angle: (..., 3) -> (..., 3, 3)."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor) -> Tensor:
        if not vector.dim() or vector.shape[-1] != 3:
            raise ValueError("vector must be (..., 3)")
        ctx.save_for_backward(vector)
        a, b, cross = _rotation_parts(vector)
        return torch.eye(3, dtype=vector.dtype) + a * cross + b * cross @ cross

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (vector,) = ctx.saved_tensors
        a, b, _ = _rotation_parts(vector)
        square = vector.square().sum(-1, keepdim=True).unsqueeze(-1)
        near = square < 0.05**2
        safe = square.where(~near, 1)
        slope_a = (safe.sqrt().cos() - a) / safe
        slope_b = (a - 2 * b) / safe
        slope_a = torch.where(near, _series(square, 3), slope_a)
        slope_b = torch.where(near, _series(square, 4), slope_b)
        return _rotation_vjp(grad, vector, slope_a, slope_b)


class RotationMatrixDivided(RotationMatrix):
    """Backward divides by the angle."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (vector,) = ctx.saved_tensors
        a, b, _ = _rotation_parts(vector)
        square = vector.square().sum(-1, keepdim=True).unsqueeze(-1)
        return _rotation_vjp(grad, vector, (square.sqrt().cos() - a) / square, (a - 2 * b) / square)


def _rotation_parts(vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sin(t) / t, (1 - cos(t)) / t**2 and the matrix of the cross product, t the angle."""
    angle = torch.linalg.vector_norm(vector, dim=-1)[..., None, None]
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
    return torch.sinc(angle / math.pi), torch.sinc(angle / math.tau).square() / 2, cross


def _series(square: Tensor, first: int) -> Tensor:
    """Return the slope of a (first = 3) or b (first = 4) over the angle, up to the sixth power of the angle."""
    terms = [(-1) ** k * 2 * k * square ** (k - 1) / math.factorial(2 * k + first - 2) for k in range(1, 5)]
    return torch.stack(terms).sum(0)


def _rotation_vjp(grad: Tensor, vector: Tensor, slope_a: Tensor, slope_b: Tensor) -> Tensor:
    a, b, cross = _rotation_parts(vector)
    along = (slope_a * (grad * cross).sum((-2, -1), keepdim=True)).squeeze(-1) * vector
    along += (slope_b * (grad * (cross @ cross)).sum((-2, -1), keepdim=True)).squeeze(-1) * vector
    of_cross = a * grad + b * (grad @ cross.mT + cross.mT @ grad)
    skew = of_cross - of_cross.mT
    return along + torch.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], -1)


LATER_IMAGES = (
    Hidden(
        name="image patches",
        change="sizes",
        wrong=ImagePatchesSwapped,
        right=ImagePatches,
        inputs=lambda: (normal(140, 4, 4), 2),
        shows_at=lambda: (normal(140, 4, 6), 2),
    ),
    Hidden(
        name="grid sample",
        change="constants",
        wrong=GridSampleUnclipped,
        right=GridSample,
        inputs=lambda: (normal(141, 3, 4), uniform(142, -0.6, 0.6, 3, 2)),
        shows_at=lambda: (normal(141, 3, 4), numbers([0.1, 0.3], [-1.2, 0.4])),
    ),
    Hidden(
        name="splat compositing",
        change="constants",
        wrong=SplatCompositingUnclamped,
        right=SplatCompositing,
        inputs=lambda: (uniform(143, 0.2, 0.9, 3), uniform(144, 0.2, 1.5, 3), uniform(145, 0.0, 1.0, 3, 2)),
        shows_at=lambda: (numbers(0.5, 1.0, 0.25), numbers(0.5, 0.01, 1.0), uniform(145, 0.0, 1.0, 3, 2)),
    ),
    Hidden(
        name="rotation matrix",
        change="zeros",
        wrong=RotationMatrixDivided,
        right=RotationMatrix,
        inputs=lambda: (normal(146, 2, 3),),
        shows_at=lambda: (numbers([0.5, 1.0, -0.25], [0.0, 0.0, 0.0]),),
    ),
)
