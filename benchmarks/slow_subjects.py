"""Functions with slow forwards, as public packages write them, each in four variants."""

from __future__ import annotations

from benchmarks.slow_blocks import BLOCKS
from benchmarks.slow_geometry import GEOMETRY
from benchmarks.slow_implicit import IMPLICIT
from benchmarks.slow_matrices import MATRICES
from benchmarks.slow_odes import ODES
from benchmarks.slow_optimisation import OPTIMISATION
from benchmarks.slow_paths import PATHS
from benchmarks.slow_quadrature import QUADRATURE
from benchmarks.slow_recursions import RECURSIONS
from benchmarks.slow_simplex import SIMPLEX

SUBJECTS = (
    *IMPLICIT,
    *SIMPLEX,
    *OPTIMISATION,
    *RECURSIONS,
    *ODES,
    *PATHS,
    *QUADRATURE,
    *MATRICES,
    *GEOMETRY,
    *BLOCKS,
)
