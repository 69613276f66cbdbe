"""Our forwards on slow Functions, counted by the part of the engine that calls them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType

from benchmarks.plain_table import table
from benchmarks.slow_costs import our_cost
from benchmarks.slow_subject import Slow, Variant

# A forward belongs to the first of these (file, function) on its stack, from the inside out; "" for any function.
_STAGES = (
    ("columns.py", "_confirmed_together", "confirmation along a direction"),
    ("step_noise.py", "", "noise at steps"),
    ("noise.py", "largest_change", "changes nearby"),
    ("ladder.py", "", "ladder"),
    ("single_step.py", "", "single steps"),
    ("stencil.py", "initial_samples", "noise and first steps"),
    ("columns.py", "", "first steps"),
    ("elementwise.py", "", "elementwise strategy"),
    ("structure.py", "find_structure", "search for a structure"),
    ("backward_rounding.py", "", "excuse"),
    ("oblique_kinks.py", "", "excuse"),
    ("stairs.py", "", "excuse"),
    ("subgradients.py", "", "subgradients"),
    ("gradgradcheck.py", "_kinked_columns", "kinks of the forward at order 2"),
    ("repeatable.py", "", "repeatable, other dtypes"),
    ("sampler.py", "sampler", "sampler"),
    ("batching.py", "", "many points in one call"),
    ("vjps.py", "", "vjps"),
)
_FOLDERS = (
    ("/diagnosis/", "diagnosis"),
    ("/contract/", "contract"),
    ("/checks/", "check"),
)


def stage_table(chosen: Sequence[tuple[Slow, Variant]], check: str) -> str:
    """Return a table with a row per stage of the check: forwards of each variant, summed over its Functions."""
    counts: Counter[tuple[str, Variant]] = Counter()
    for slow, variant in chosen:

        def watch(variant: Variant = variant) -> None:
            counts[stage_of(sys._getframe()), variant] += 1

        our_cost(check, slow.functions[variant], slow.variants[variant], watch)
    variants = [variant for variant in Variant if any(each is variant for _, each in chosen)]
    sums = {stage: sum(counts[stage, variant] for variant in variants) for stage, _ in counts}
    stages = sorted(sums, key=lambda stage: -sums[stage])
    rows = [(stage, *(counts[stage, variant] for variant in variants), sums[stage]) for stage in stages]
    totals = [sum(counts[stage, variant] for stage in stages) for variant in variants]
    header = (f"{check}: forwards", *variants, "in all")
    return table(header, [*rows, ("in all", *totals, sum(totals))])


def stage_of(frame: FrameType | None) -> str:
    """Return the stage on whose behalf the code in this frame runs."""
    fallback = "other"
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if "/gradverify/" in path:
            found = _named(path, name)
            if found and found not in ("vjps", "many points in one call"):
                return found
            fallback = found or fallback
        frame = frame.f_back
    return fallback


def _named(path: str, name: str) -> str:
    file = path.rpartition("/")[2]
    for known, function, stage in _STAGES:
        if file == known and function in ("", name):
            return stage
    for folder, stage in _FOLDERS:
        if folder in path:
            return f"{stage}: {file.removesuffix('.py')}"
    return ""
