"""The same values in another dtype or another memory layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import torch

from gradverify.case import Case, Layout
from gradverify.checks import precision
from gradverify.checks.reference.evaluate import as_plain_code
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import graph_nodes, record
from gradverify.exploration.change import Base, Change, edits, floating_paths
from gradverify.exploration.dims import dimensions
from gradverify.exploration.inputs import tensor_inputs, with_input
from gradverify.exploration.legal import allowed
from gradverify.exploration.proposals.sizes import resize, uncut
from gradverify.exploration.proposals.values import at_constants, of_other_scale, with_zeros
from gradverify.exploration.tools import Tools

DTYPE, LAYOUT = "dtype", "layout"
_ALSO_IN = ("float32", "float16")  # in which changes of values are made too
_HALF = ("bfloat16", "float16")
_LOWER = {"float64": ("float32", "bfloat16", "float16"), "float32": ("bfloat16", "float16")}
_LONG = 513  # terms of a sum around 1 that is rounded to bfloat16 at each: it stops growing at 256
_MOST_OPERATIONS = 1_000  # of a forward at that size
_MOST_OUTPUTS = 200_000  # entries of its outputs
_MOST = 6  # changes of values in float32, of each kind
_LAYOUTS = (Layout.TRANSPOSED, Layout.STRIDED, Layout.EXPANDED, Layout.CHANNELS_LAST)


def without_dtype(phrase: str) -> str:
    """Return the phrase of a change of values without the lower dtype that it is made in."""
    for dtype in _ALSO_IN:
        phrase = phrase.removesuffix(f", in {dtype}")
    return phrase


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
    yield from _long_sums(base)
    if "float16" in lower:  # whose squares overflow
        yield from (_also_in("float16", change) for change in islice(of_other_scale(base), 1))
    ways = (of_other_scale(base), at_constants(base), with_zeros(base))
    for way in ways if "float32" in lower else ():
        yield from (_also_in("float32", change) for change in islice(way, _MOST))


def _long_sums(base: Base) -> Iterator[Change]:
    """Yield cases in half precision with one long dimension and positive values, at which `precision` is asked.

    A sum that is rounded at each term has stopped growing by then: it should be accumulated in float32.
    """
    own = base.case.dtype
    dtype = own if own in _HALF else "bfloat16"
    if dtype not in (own, *_LOWER.get(own, ())):
        return
    positive = edits(base, DTYPE, floating_paths(base), "absolute values", torch.abs)
    for dimension in dimensions(base):
        if allowed(base.case, dimension.name, _LONG):
            longer = resize(base, dimension, _LONG, partial(_why_no_long_sum, own), *uncut(base, dimension))
            phrase = longer.phrase if dtype == own else f"in {dtype}, {longer.phrase}"
            yield replace(
                longer,
                kind=DTYPE,
                phrase=f"{phrase}, absolute values",
                apply=partial(_in_turn, (longer, positive), dtype),
                asks=(precision.NAME,),
                far=dtype != own,
            )


def _why_no_long_sum(dtype: str, case: Case, _problem: Problem, tools: Tools) -> str:
    """Return why no sum of backward is as long as the dimension, or takes too long; "" if neither. May raise.

    Backward sums over entries of outputs. They are those in the dtype as written, in which forward may be faster.
    """
    plain = as_plain_code(tools.build(_in_dtype(dtype, case)))
    outputs = [output.tensor for output in record(plain).outputs]
    if not any(_LONG in output.shape for output in outputs):
        return "no output is as long"
    is_loop = next(islice(graph_nodes(outputs), _MOST_OPERATIONS, None), None) is not None
    is_large = sum(output.numel() for output in outputs) > _MOST_OUTPUTS
    return "forward takes too long" if is_loop or is_large else ""


def _laid_out(path: str, layout: Layout, case: Case) -> Case:
    return with_input(case, path, replace(tensor_inputs(case)[path], layout=layout))


def _in_dtype(dtype: str, case: Case) -> Case:
    return replace(case, dtype=dtype)


def _also_in(dtype: str, change: Change) -> Change:
    return Change(
        kind=DTYPE,
        phrase=f"{change.phrase}, in {dtype}",
        apply=partial(_in_turn, (change,), dtype),
        names=change.names,
        far=dtype in _HALF,
    )


def _in_turn(changes: Sequence[Change], dtype: str, case: Case) -> Case:
    for change in changes:
        case = change.apply(case)
    return _in_dtype(dtype, case)
