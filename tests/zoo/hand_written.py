"""Specimens of hand-written Functions, similar to those in public packages."""

from __future__ import annotations

import torch

from tests.zoo.layer_functions import (
    Cholesky,
    Conv,
    CrossEntropy,
    Fixpoint,
    Interpolate,
    Inverse,
    LayerNorm,
    Linear,
    MaxWithIndex,
    ScatterSum,
)
from tests.zoo.small_functions import (
    BinaryFocal,
    BroadcastProduct,
    ComplexScale,
    Cumsum,
    Exp,
    FloatInside,
    GeluTanh,
    Mish,
    Newton,
    OnlyOnce,
    Permute,
    Relu,
    SafeNorm,
    SinAndCos,
    Softmax,
    SquareInPlace,
    Swish,
)
from tests.zoo.specimen import Specimen, at, complex_normal, diagonal, fixed, integers, normal, specimen, uniform

_H = "hand-written"

HAND_WRITTEN: tuple[Specimen, ...] = (
    specimen("Swish", Swish.apply, _H, x=normal(6, scale=3)),
    specimen("Exp", Exp.apply, _H, x=normal(4), exact=diagonal(torch.exp)),
    specimen("Relu", Relu.apply, _H, x=normal(6)),
    specimen("Relu at zero", Relu.apply, _H, "on a kink", x=at(0.0, 1.0, -1.0)),
    specimen("Linear", Linear.apply, _H, x=normal(3, 4), w=normal(2, 4), b=normal(2)),
    specimen("Linear without bias", Linear.apply, _H, x=normal(3, 4), w=normal(2, 4), b=None),
    specimen("Softmax", Softmax.apply, _H, x=normal(2, 4)),
    specimen("Softmax saturated", Softmax.apply, _H, "saturated", x=at([0.0, 40.0, 38.0])),
    specimen("LayerNorm", LayerNorm.apply, _H, "once differentiable", x=normal(2, 4), w=normal(4), b=normal(4)),
    specimen("CrossEntropy", CrossEntropy.apply, _H, "once differentiable", x=normal(3, 4), y=integers(4, 3)),
    specimen("Cumsum", Cumsum.apply, _H, x=normal(2, 4)),
    specimen("ScatterSum", ScatterSum.apply, _H, x=normal(5), index=integers(3, 5), size=3),
    specimen("MaxWithIndex", MaxWithIndex.apply, _H, x=normal(3, 4)),
    specimen("SquareInPlace", lambda x: SquareInPlace.apply(x.clone()), _H, "wrong at order 2", x=normal(4)),
    specimen("OnlyOnce", OnlyOnce.apply, _H, "once differentiable", x=normal(4), exact=diagonal(torch.cos)),
    specimen("Cholesky", Cholesky.apply, _H, x=at([4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0])),
    specimen("Inverse", Inverse.apply, _H, a=normal(3, 3)),
    specimen("Conv", Conv.apply, _H, "once differentiable", x=normal(1, 2, 5), w=normal(2, 2, 3)),
    specimen("Fixpoint", Fixpoint.apply, _H, x=normal(3), w=normal(3, 3, scale=0.2)),
    specimen("Newton", Newton.apply, _H, "noisy", x=uniform(0.5, 4, 4), exact=diagonal(lambda x: 0.5 / x.sqrt())),
    specimen("SafeNorm", SafeNorm.apply, _H, "on a kink", x=at([0.0, 0.0], [3.0, 4.0])),
    specimen("ComplexScale", ComplexScale.apply, _H, z=complex_normal(3), c=lambda g: complex_normal()(g)),
    specimen("SinAndCos", SinAndCos.apply, _H, x=normal(4)),
    specimen("Interpolate", Interpolate.apply, _H, "wrong at order 2", table=normal(5), x=uniform(0.2, 3.8, 4)),
    specimen("GeluTanh", GeluTanh.apply, _H, x=normal(6, scale=2)),
    specimen("Mish", Mish.apply, _H, x=normal(6, scale=2)),
    specimen(
        "BinaryFocal",
        BinaryFocal.apply,
        _H,
        "wrong at order 2",
        x=normal(4, scale=3),
        y=fixed(1.0, 0.0, 1.0, 0.0, dtype=torch.float64),
    ),
    specimen("FloatInside", FloatInside.apply, _H, "noisy", x=normal(4), exact=diagonal(torch.sigmoid)),
    specimen("Permute", Permute.apply, _H, x=normal(2, 3, 2)),
    specimen("BroadcastProduct", BroadcastProduct.apply, _H, x=normal(3, 1), y=normal(4)),
)
