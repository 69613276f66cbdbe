"""Functions with slow forwards from `benchmarks.slow`: right ones, and the same with one entry of a gradient zero.

They are not in ZOO, which other tests and benchmarks run as a whole.
"""

from __future__ import annotations

from benchmarks.slow_subject import Variant
from benchmarks.slow_subjects import SUBJECTS
from tests.zoo.specimen import Specimen
from tests.zoo.wrong import Wrong

SLOW_FUNCTIONS: tuple[Specimen, ...] = tuple(subject.variants[Variant.RIGHT] for subject in SUBJECTS)

WRONG_SLOW_FUNCTIONS: tuple[Wrong, ...] = tuple(
    Wrong(
        specimen=subject.variants[Variant.ONE_ENTRY],
        wrt=subject.wrong_input,
        output_index=subject.wrong_output,
        input_index=subject.wrong_index,
    )
    for subject in SUBJECTS
)
