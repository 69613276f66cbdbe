"""A summand of the derivative is left out: the error is one number in all wrong entries, or a multiple of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.laid import Laid, laid
from gradverify.diagnosis.block.relation import times
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import is_elementwise, on_diagonal
from gradverify.diagnosis.causes.scaled import MISSING_FACTOR
from gradverify.diagnosis.causes.term import MISSING_TERM
from gradverify.diagnosis.naming.constants import number, recognise
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import differ, part

_SAME = 1e-5  # relative: errors that are one number
_SEVERAL = 4  # entries that agree
_VARIES = 0.01  # by which part a tensor varies along a line, at least
_EXACTLY = 1e-12  # relative: what backward has multiplied by
_TINY = torch.finfo(torch.float64).tiny


def missing_summand(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All wrong entries are off by one number, or every entry by one number times what a tensor holds there."""
    for pattern, words in _summands(evidence, seen):
        error = (seen.claimed - seen.numeric)[seen.wrong]
        held = pattern[seen.wrong]
        if len(held) < _SEVERAL or not bool((held != 0).all()):
            continue
        if not _varies(seen.claimed[seen.wrong] / seen.numeric[seen.wrong]):
            continue  # a factor says as much
        factor = float((error / held).median())
        slack = _SAME * error.abs() + torch.minimum(seen.slack[seen.wrong], 1e-3 * error.abs())
        if factor == 0 or bool(((error - factor * held).abs() > slack).any()):
            continue
        share = share_of(seen, seen.numeric + factor * pattern)
        if share is not None:
            count = differ(len(held), int((~seen.zero | seen.wrong).sum()), "entries")
            summand = f"{'+' if factor > 0 else '-'} {_times(abs(factor), words)}"
            text = f"{count}; analytic = numeric {summand}: a summand is missing or too many{part(share)}"
            return Diagnosis(cause=MISSING_TERM, explanation=text, share=share)
    return None


def missing_by_line(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every wrong entry is off by a number of its output's, or of its input's, own, or that times a tensor's entry."""
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    for axis, own in ((Axis.INPUT, "output"), (Axis.OUTPUT, "input")):
        for each in (_ones(seen, axis), *laid(evidence, axis)):
            found = _by_line(seen, error, each)
            share = None if found is None else share_of(seen, seen.numeric + found)
            if share is not None:
                count = differ(int(seen.wrong.sum()), int((~seen.zero | seen.wrong).sum()), "entries")
                times = f" × {each.name}{each.where}" if each.name else ""
                goes = f"goes with {each.name}" if each.name else f"is one number in all wrong entries of an {own}"
                text = f"{count}; analytic = numeric + k{times}, with a number k of each {own}'s own"
                text = f"{text}: a term that {goes} is missing or too many{part(share)}"
                return Diagnosis(cause=MISSING_TERM, explanation=text, share=share)
    return None


def _ones(seen: Seen, axis: Axis) -> Laid:
    """Return a one for every coordinate of an axis, under no name."""
    values = torch.ones(seen.numeric.shape[axis.value], dtype=seen.numeric.dtype, device=seen.numeric.device)
    return Laid(name="", where="", axis=axis, values=values)


def one_tensor_alone(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry that is claimed is what a tensor holds there, and nothing else."""
    live = seen.claimed != 0
    claimed = seen.claimed[live]
    for axis in Axis:
        for each in laid(evidence, axis):
            held = each.spread.expand_as(seen.claimed)
            if bool((seen.wrong & ~live & (held != 0)).any()):
                continue  # something else is claimed there, namely nothing
            sign = next((sign for sign in (1.0, -1.0) if _are_same(claimed, sign * held[live])), None)
            share = None if sign is None else share_of(seen, torch.where(live, sign * held, 0.0))
            if share is not None:
                text = f"analytic = {'-' if sign == -1.0 else ''}{each.name}{each.where} and nothing else"
                text = f"{text}: a factor or a term is missing beside it, or another tensor belongs in its place"
                return Diagnosis(cause=MISSING_FACTOR, explanation=f"{text}{part(share)}", share=share)
    return None


def cotangent_alone(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry that is claimed is one number, which no wrong one goes without."""
    del evidence
    live = seen.claimed != 0
    if bool((seen.wrong & ~live).any()) or int(seen.wrong.sum()) < _SEVERAL or _is_one_size(seen.numeric[seen.wrong]):
        return None
    claimed = seen.claimed[live]
    factor = float(claimed[0])
    if bool(((claimed - factor).abs() > _EXACTLY * abs(factor)).any()):
        return None
    share = share_of(seen, torch.where(live, factor, 0.0))
    if share is None:
        return None
    text = f"analytic = {times(factor, 'cotangent')} and nothing else"
    text = f"{text}: a factor or a term of the derivative is missing beside it{part(share)}"
    return Diagnosis(cause=MISSING_FACTOR, explanation=text, share=share)


def _is_one_size(entries: Tensor) -> bool:
    size = entries.abs()
    return bool(size.max() - size.min() <= _VARIES * size.max())


def _are_same(claimed: Tensor, held: Tensor) -> bool:
    near = (claimed - held).abs() <= _EXACTLY * held.abs()
    return bool(near.all()) and int(torch.unique(held).numel()) >= _SEVERAL


def _by_line(seen: Seen, error: Tensor, each: Laid) -> Tensor | None:
    """Return the error (m, n) as multiples of a tensor, one per line across its axis; None where it is none.

    Lines need so many wrong entries, at which a tensor that has a name varies, that one number for them is no
    coincidence. Where the derivative itself is such multiples, any factors are.
    """
    along = 1 - each.axis.value  # the axis across which lines go side by side
    held = each.spread.expand_as(error).masked_fill(~seen.wrong, 0.0)
    lines = seen.wrong.any(1 - along)
    least, largest = held.abs().masked_fill(~seen.wrong, math.inf).amin(1 - along), held.abs().amax(1 - along)
    many = seen.wrong.sum(1 - along) >= _SEVERAL
    varies = largest > (1 + _VARIES) * least if each.name else many
    if int(lines.sum()) < 2 or not bool((many & varies & (least > 0))[lines].all()):
        return None
    found, right = (_multiples(entries, held, 1 - along) for entries in (error, seen.numeric))
    slack = _SAME * error.abs() + torch.minimum(seen.slack, 1e-3 * error.abs())
    if bool(((seen.numeric - right).abs() <= slack)[seen.wrong].all()):
        return None
    return found if bool(((error - found).abs() <= slack)[seen.wrong].all()) else None


def _multiples(entries: Tensor, held: Tensor, dim: int) -> Tensor:
    """Return the multiples of `held` along a dimension that are nearest to the entries; (m, n)."""
    return (entries * held).sum(dim, keepdim=True) / held.square().sum(dim, keepdim=True).clamp(min=_TINY) * held


def _summands(evidence: Evidence, seen: Seen) -> Iterator[tuple[Tensor, str]]:
    """Yield what the error may be a multiple of, (m, n), and its name."""
    yield seen.wrong.to(seen.numeric.dtype), ""
    if total(evidence.of.shape) == 1 or is_elementwise(evidence, seen):
        for each in laid(evidence, Axis.INPUT):
            if int(torch.unique(each.values).numel()) >= _SEVERAL:
                yield on_diagonal(evidence, each.values), each.name


def _varies(ratio: Tensor) -> bool:
    return bool(((ratio - ratio[0]).abs() > 1e-3 * ratio[0].abs()).any()) or not bool(torch.isfinite(ratio).any())


def _times(factor: float, words: str) -> str:
    known = recognise(factor, _SAME, ())
    text = known.text if known is not None else number(factor)
    if words and math.isclose(factor, 1.0, rel_tol=_SAME):
        return words
    return f"{text} × {words}" if words else text
