"""Many vector-Jacobian products in one call, and rows of the analytic Jacobian."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from gradverify.core.backward.vjps import LAST_DIGITS, Backward, Reuse, is_reusable, row
from gradverify.core.model.limits import chunks
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.problem import metered
from gradverify.core.model.tape import function_nodes, is_intact
from gradverify.interception import without_data

EVERYTHING = slice(None)  # all input coordinates
MIN_BATCHED = 12  # cotangents: fewer are pulled back one by one
SUM_UNITS = 16.0  # eps of a dtype, if that is larger: rounding that accumulates in a sum
_SINGLE_OUTPUT_COTANGENT = 0.25  # a power of two, so that dividing by it is exact


def many_vjps(backward: Backward, cotangents: Tensor, only: slice = EVERYTHING) -> Tensor:
    """Return cotangent·A for each of the cotangents, (K, m) -> (K, n), in one call if backward allows it.

    `only` restricts the result to these input coordinates. One row of every vectorised call, another each time, is
    compared with a single vjp. While reuse of the graph is untested, the known first vjp is repeated instead.
    """
    if len(cotangents) >= MIN_BATCHED and backward.batched.trusted and backward.graph.reuse is None:
        vjps = _with_known_vjp(backward, cotangents, only)
        if vjps is not None:
            return vjps
    if len(cotangents) >= MIN_BATCHED and is_reusable(backward) and backward.batched.trusted:
        vjps = _vectorised(backward, cotangents, only)
        state = backward.batched
        state.calls += 1
        place = (state.calls * 7919) % len(cotangents)
        if vjps is not None and torch.equal(vjps[place], row(backward, cotangents[place])[only]):
            return vjps
        state.trusted = False
    return torch.stack([row(backward, cotangent)[only] for cotangent in cotangents])


def rows(backward: Backward, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for the output coordinates `places`, each (n,)."""
    for block in _row_blocks(backward, places):
        yield from block


def jacobian(backward: Backward) -> Tensor:
    """Return the analytic Jacobian, (m, n), at the cost of m vjps."""
    cotangent, vjp = backward.known_vjp
    found = list(_row_blocks(backward, range(len(cotangent))))
    return torch.cat(found) if found else vjp.new_zeros(0, len(vjp))


def row_cotangent(backward: Backward) -> float:
    """Return the cotangent entry with which rows are computed; they are divided by it afterwards.

    It is not 1 for a single output, so that a backward that ignores the cotangent is detected.
    """
    return _SINGLE_OUTPUT_COTANGENT if len(backward.known_vjp[0]) == 1 else 1.0


def _with_known_vjp(backward: Backward, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return cotangent·A for each cotangent, checked by repeating the first vjp in the same call; (K, n).

    If that agrees up to rounding, the graph and vectorised vjps are trusted from then on; else None.
    """
    cotangent, expected = backward.known_vjp
    if not is_intact(backward.tape):
        return None
    found = _vectorised(backward, torch.cat([cotangents, cotangent.unsqueeze(0)]), only)
    if found is None:
        backward.batched.trusted = False
        return None
    vjps, repeated, expected = found[:-1], found[-1], expected[only]
    rounding = max(LAST_DIGITS, SUM_UNITS * backward.problem.eps)
    agrees = torch.equal(repeated, expected) or all_set(
        (repeated - expected).abs_() <= vjps.abs().sum(dim=0).mul_(rounding)
    )
    if not agrees:
        return None
    backward.graph.reuse = Reuse.SHARED
    backward.batched.calls += 1
    return vjps


def _vectorised(backward: Backward, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return cotangent·A for each cotangent from a vectorised backward, None if it cannot be vectorised; (K, n)."""
    tape, primals = backward.tape, [primal.tensor for primal in backward.problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    if (
        backward.problem.accumulates
        or not all(output.requires_grad for output in outputs)
        or any(map(torch.is_complex, (*outputs, *primals)))
    ):
        return None
    chosen = _inside(primals, only)
    primals, leaves = [primals[k] for k in chosen], [tape.leaves[k] for k in chosen]
    pieces = torch.split(cotangents.to(outputs[0].device), [output.numel() for output in outputs], dim=1)
    shaped = [
        piece.reshape(len(cotangents), *output.shape).to(output.dtype)
        for piece, output in zip(pieces, outputs, strict=True)
    ]
    metered(backward.problem).backward += 1
    try:
        with warnings.catch_warnings(), torch.no_grad(), without_data(function_nodes(outputs)):
            warnings.simplefilter("ignore")
            grads = torch.autograd.grad(
                outputs, leaves, shaped, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
    except Exception:  # a backward may raise anything if it does not support vmap or a second call
        return None
    flat = [
        torch.zeros(len(cotangents), primal.numel(), dtype=torch.float64, device=primal.device)
        if grad is None
        else grad.reshape(len(cotangents), -1).to(primal.dtype).to(torch.float64)
        for grad, primal in zip(grads, primals, strict=True)
    ]
    return torch.cat([grad.to(flat[0].device) for grad in flat], dim=1) if len(flat) > 1 else flat[0]


def _inside(primals: Sequence[Tensor], only: slice) -> list[int]:
    """Return the indices of the tensors, all real, whose coordinates are all within the range `only`."""
    bounds = [0, *accumulate(primal.numel() for primal in primals)]
    first, end_of_range, _ = only.indices(bounds[-1])
    return [k for k, (start, end) in enumerate(pairwise(bounds)) if first <= start and end <= end_of_range]


def _row_blocks(backward: Backward, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for the output coordinates `places`, in blocks (k, n) of limited memory."""
    cotangent, (outputs, inputs) = row_cotangent(backward), map(len, backward.known_vjp)
    for block in chunks(torch.tensor(places), outputs + inputs):
        cotangents = torch.zeros(len(block), outputs, dtype=torch.float64)
        found = many_vjps(backward, cotangents.scatter_(1, block.unsqueeze(1), cotangent))
        yield found if cotangent == 1.0 else found / cotangent
