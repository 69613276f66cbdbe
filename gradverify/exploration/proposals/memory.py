"""The same values in another dtype or another memory layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from gradverify.case import Case, Layout
from gradverify.exploration.change import Base, Change, floating_paths
from gradverify.exploration.inputs import tensor_inputs, with_input
from gradverify.exploration.proposals.values import at_constants, of_other_scale, with_zeros

DTYPE, LAYOUT = "dtype", "layout"
IN_SINGLE = ", in float32"  # ends the phrase of a change of values that is made in float32
_LOWER = {"float64": ("float32", "bfloat16", "float16"), "float32": ("bfloat16", "float16")}
_MOST = 6  # changes of values in float32, of each kind
_LAYOUTS = (Layout.TRANSPOSED, Layout.STRIDED, Layout.EXPANDED, Layout.CHANNELS_LAST)


def of_other_layout(base: Base) -> Iterator[Change]:
    """Yield tensors that are transposed, strided or expanded in memory."""
    for layout in _LAYOUTS:
        for path in floating_paths(base):
            apply = partial(_laid_out, path, layout)
            yield Change(kind=LAYOUT, phrase=f"{path}: {layout.value} in memory", apply=apply, names=(path,))


def of_other_dtype(base: Base) -> Iterator[Change]:
    """Yield the case in lower precision; in float32 also of other scales, and around numbers in the code and zeros."""
    lower = _LOWER.get(base.case.dtype, ())
    for dtype in lower:
        far = dtype != "float32"  # where numbers overflow and thresholds vanish that float64 holds
        yield Change(kind=DTYPE, phrase=f"in {dtype}", apply=partial(_in_dtype, dtype), far=far)
    ways = (of_other_scale(base), at_constants(base), with_zeros(base))
    for way in ways if "float32" in lower else ():
        for change in islice(way, _MOST):
            apply = partial(_then_single, change)
            yield Change(kind=DTYPE, phrase=f"{change.phrase}{IN_SINGLE}", apply=apply, names=change.names)


def _laid_out(path: str, layout: Layout, case: Case) -> Case:
    return with_input(case, path, replace(tensor_inputs(case)[path], layout=layout))


def _in_dtype(dtype: str, case: Case) -> Case:
    return replace(case, dtype=dtype)


def _then_single(change: Change, case: Case) -> Case:
    return _in_dtype("float32", change.apply(case))
