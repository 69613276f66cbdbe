"""All right specimens, ZOO, and all wrong ones, ALL_WRONG."""

from __future__ import annotations

import torch

from tests.zoo.complex_numbers import COMPLEX
from tests.zoo.difficult_points import EDGES, NOISY, SCALED
from tests.zoo.elementwise import ELEMENTWISE
from tests.zoo.hand_written import HAND_WRITTEN
from tests.zoo.indexing import INDEXING
from tests.zoo.infinite_derivatives import INFINITE, WRONG_INFINITE
from tests.zoo.kinks import KINKS
from tests.zoo.layers import CONVOLUTIONS, NORMALISATIONS
from tests.zoo.linear_algebra import LINEAR_ALGEBRA
from tests.zoo.losses import LOSSES
from tests.zoo.low_precision import LOW_PRECISION, WRONG_LOW_PRECISION
from tests.zoo.reductions import REDUCTIONS
from tests.zoo.saturation import SATURATED, WRONG_SATURATED
from tests.zoo.science import SCIENCE
from tests.zoo.shapes import SHAPES
from tests.zoo.slight_kinks import SLIGHT_KINKS, WRONG_SLIGHT_KINKS
from tests.zoo.specimen import Specimen
from tests.zoo.staircases import STAIRCASES, WRONG_STAIRCASES
from tests.zoo.ties import TIES, WRONG_TIES
from tests.zoo.wrong import WRONG, Wrong

_ALL: tuple[Specimen, ...] = (
    *ELEMENTWISE,
    *REDUCTIONS,
    *LINEAR_ALGEBRA,
    *NORMALISATIONS,
    *CONVOLUTIONS,
    *LOSSES,
    *INDEXING,
    *KINKS,
    *SCALED,
    *EDGES,
    *NOISY,
    *COMPLEX,
    *SHAPES,
    *SCIENCE,
    *HAND_WRITTEN,
    *TIES,
    *SLIGHT_KINKS,
    *SATURATED,
    *INFINITE,
    *LOW_PRECISION,
    *STAIRCASES,
)

ALL_WRONG: tuple[Wrong, ...] = (
    *WRONG,
    *WRONG_TIES,
    *WRONG_SLIGHT_KINKS,
    *WRONG_SATURATED,
    *WRONG_INFINITE,
    *WRONG_LOW_PRECISION,
    *WRONG_STAIRCASES,
)

# Before these versions, torch lacks the derivative or computes the function with far larger rounding.
_LOWEST_TORCH = {"aminmax": "2.12", "elu, 1e-12 from its kink": "2.9"}

ZOO = tuple(each for each in _ALL if torch.__version__ >= _LOWEST_TORCH.get(each.name, "0"))
