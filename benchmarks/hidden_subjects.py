"""Functions with a hidden mistake, each with a right twin: what the benchmark of `gradverify explore` searches."""

from __future__ import annotations

from benchmarks.hidden_arguments import ARGUMENTS
from benchmarks.hidden_constants import CONSTANTS
from benchmarks.hidden_indices import INDICES
from benchmarks.hidden_second_order import SECOND_ORDER
from benchmarks.hidden_shapes import SHAPES
from benchmarks.hidden_sizes import SIZES
from benchmarks.hidden_ties import TIES
from benchmarks.hidden_windows import WINDOWS
from benchmarks.hidden_zeros import ZEROS

SUBJECTS = (*WINDOWS, *ARGUMENTS, *INDICES, *CONSTANTS, *ZEROS, *TIES, *SIZES, *SHAPES, *SECOND_ORDER)
