"""All right specimens in one tuple."""

from __future__ import annotations

import torch

from tests.zoo.awkward import EDGES, NOISY, SCALED
from tests.zoo.complex_numbers import COMPLEX
from tests.zoo.elementwise import ELEMENTWISE
from tests.zoo.hand_written import HAND_WRITTEN
from tests.zoo.indexing import INDEXING
from tests.zoo.kinks import KINKS
from tests.zoo.layers import CONVOLUTIONS, NORMALISATIONS
from tests.zoo.linear_algebra import LINEAR_ALGEBRA
from tests.zoo.losses import LOSSES
from tests.zoo.reductions import REDUCTIONS
from tests.zoo.science import SCIENCE
from tests.zoo.shapes import SHAPES
from tests.zoo.specimen import Specimen

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
)

# Before these versions, torch lacks the derivative or computes the function with far larger rounding.
_LOWEST_TORCH = {"aminmax": "2.12", "elu, 1e-12 from its kink": "2.9"}

ZOO = tuple(each for each in _ALL if torch.__version__ >= _LOWEST_TORCH.get(each.name, "0"))
