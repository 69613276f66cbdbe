"""Many cotangents in one call of backward, where it allows that and says what it says to each of them alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from gradverify.core.function.analytic import Reuse, Reverse, may_be_asked, row
from gradverify.core.function.flags import all_set
from gradverify.core.function.problem import metered
from gradverify.core.function.tape import is_intact

EVERYTHING = slice(None)  # all inputs
WORTH = 12  # fewer cotangents are asked one by one
ROUNDING = 1e-13  # of the sizes of the terms of a sum
_ULPS = 16.0  # of the inputs' own dtype, where that is coarser


def answers(backward: Reverse, cotangents: Tensor, only: slice = EVERYTHING) -> Tensor:
    """Return cotangent·A for each of the cotangents, (K, m) -> (K, n), in one call where backward allows it.

    Of the inputs with coordinates in `only`, where no others are asked for. One answer of every such call, another one
    each time, is compared with that of a call of its own, for all inputs. In the first call, where nobody knows yet
    whether the graph may be asked again, that is what backward has said before.
    """
    if len(cotangents) >= WORTH and backward.batched.believed and backward.graph.reuse is None:
        found = _beside_the_first(backward, cotangents, only)
        if found is not None:
            return found
    if len(cotangents) >= WORTH and may_be_asked(backward) and backward.batched.believed:
        found = _at_once(backward, cotangents, only)
        state = backward.batched
        state.calls += 1
        place = (state.calls * 7919) % len(cotangents)
        if found is not None and torch.equal(found[place], row(backward, cotangents[place])[only]):
            return found
        state.believed = False
    return torch.stack([row(backward, cotangent)[only] for cotangent in cotangents])


def _beside_the_first(backward: Reverse, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return the answers to these and, in the same call, to the cotangent that backward has answered already.

    Where it says the same again, but for rounding, it may be asked again, and many at once. None where it does not.
    """
    cotangent, expected = backward.heard
    if not is_intact(backward.tape):
        return None
    found = _at_once(backward, torch.cat([cotangents, cotangent.unsqueeze(0)]), only)
    if found is None:
        backward.batched.believed = False
        return None
    every, again, expected = found[:-1], found[-1], expected[only]
    rounding = max(ROUNDING, _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals))
    same = torch.equal(again, expected) or all_set((again - expected).abs_() <= every.abs().sum(dim=0).mul_(rounding))
    if not same:
        return None
    backward.graph.reuse = Reuse.SHARED
    backward.batched.calls += 1
    return every


def _at_once(backward: Reverse, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return the answers of a vectorised backward, None where it cannot be vectorised."""
    tape, primals = backward.tape, [primal.tensor for primal in backward.problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    if (
        backward.problem.accumulates
        or not all(output.requires_grad for output in outputs)
        or any(map(torch.is_complex, (*outputs, *primals)))
    ):
        return None
    asked = _inside(primals, only)
    primals, leaves = [primals[k] for k in asked], [tape.leaves[k] for k in asked]
    pieces = torch.split(cotangents.to(outputs[0].device), [output.numel() for output in outputs], dim=1)
    shaped = [
        piece.reshape(len(cotangents), *output.shape).to(output.dtype)
        for piece, output in zip(pieces, outputs, strict=True)
    ]
    metered(backward.problem).backward += 1
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            grads = torch.autograd.grad(
                outputs, leaves, shaped, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
    except Exception:  # a backward may raise anything: it need not support vmap, nor a second call
        return None
    flat = [
        torch.zeros(len(cotangents), primal.numel(), dtype=torch.float64, device=primal.device)
        if grad is None
        else grad.reshape(len(cotangents), -1).to(primal.dtype).to(torch.float64)
        for grad, primal in zip(grads, primals, strict=True)
    ]
    return torch.cat([each.to(flat[0].device) for each in flat], dim=1) if len(flat) > 1 else flat[0]


def _inside(primals: Sequence[Tensor], only: slice) -> list[int]:
    """Return the numbers of the tensors, all real, whose coordinates are within a range of them."""
    bounds = [0, *accumulate(primal.numel() for primal in primals)]
    first, beyond, _ = only.indices(bounds[-1])
    return [k for k, (start, end) in enumerate(pairwise(bounds)) if first <= start and end <= beyond]
