"""All right specimens in one tuple."""

from __future__ import annotations

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

ZOO: tuple[Specimen, ...] = (
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
