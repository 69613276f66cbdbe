"""A term of the derivative is left out, or put in: the error is diagonal, off the diagonal, or of low rank."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.apart import parts
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.naming.wording import part

MISSING_TERM = "missing-term"
_SMALL = 256  # rows or columns up to which all singular values are computed
_HIGHEST = 16  # rank of an error in a larger block
_RATIO = 3  # the Jacobian's own rank has to be so many times the error's
_BREADTH = 4  # rows and columns that an error of rank one has to reach, and so many per further rank


def missing_term(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The error has a structure that neither Jacobian has."""
    if evidence.of.shape == evidence.wrt.shape and seen.wrong.shape[0] > 2:
        found = _by_diagonal(seen)
        if found is not None:
            return found
    return _of_low_rank(seen)


def _by_diagonal(seen: Seen) -> Diagnosis | None:
    diagonal = torch.eye(len(seen.wrong), dtype=torch.bool, device=seen.wrong.device)
    outside = ~seen.zero & ~diagonal
    if not bool(outside.any()):
        return None
    if not bool((seen.wrong & diagonal).any()) and not bool(((seen.claimed != 0) & ~diagonal).any()):
        share = share_of(seen, seen.numeric.masked_fill(~diagonal, 0.0))
        text = "analytic = numeric on the diagonal and 0 elsewhere: the terms between different elements are missing"
    else:
        right = outside & ~seen.wrong
        alone = not bool((seen.wrong & ~diagonal).any()) and int((seen.wrong & diagonal).sum()) > 2
        enough = alone and int(right.sum()) > len(diagonal)
        share = share_of(seen, torch.where(diagonal, seen.claimed, seen.numeric)) if enough else None
        text = "only the diagonal differs: a term in which each element enters its own output alone is wrong or missing"
    if share is None:
        return None
    return Diagnosis(cause=MISSING_TERM, explanation=f"{text}{part(share)}", share=share)


def _of_low_rank(seen: Seen) -> Diagnosis | None:
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    found, ranks = torch.zeros_like(error), []
    for each in parts((seen.claimed != 0) | ~seen.zero | seen.wrong):
        if bool(seen.wrong[each.place].any()):
            low = _low_rank(error[each.place], seen.numeric[each.place])
            if low is None:
                return None
            found[each.place] = low[0]
            ranks.append(low[1])
    share = share_of(seen, seen.numeric + found)
    if share is None:
        return None
    return Diagnosis(cause=MISSING_TERM, explanation=f"{mixing(max(ranks), len(ranks))}{part(share)}", share=share)


def _low_rank(error: Tensor, numeric: Tensor) -> tuple[Tensor, int] | None:
    """Return an error (k, l) by its first singular vectors, and how many; None where it takes too many for a term."""
    reach = min(int((error != 0).any(0).sum()), int((error != 0).any(1).sum()))
    if reach < _BREADTH:
        return None
    left, values, right = _factors(error)
    rank = rank_of(values)
    if rank == 0 or reach < _BREADTH * rank or _RATIO * rank > rank_of(_factors(numeric)[1]):
        return None
    return (left[:, :rank] * values[:rank]) @ right[:rank], rank


def mixing(rank: int, times: int = 1) -> str:
    """Return what an error of low rank says, be it of the whole or of so many parts."""
    where, over = ("", "all elements")
    if times > 1:
        where, over = f"in each of {times} parts that do not depend on each other, ", "the part"
    if rank == 1:
        return f"{where}analytic - numeric is one outer product: a sum over {over} is missing or wrong"
    return f"{where}analytic - numeric is of rank {rank}: terms with {rank} sums over {over} are missing or wrong"


def _factors(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the leading singular vectors and values: all of a small matrix, those of a random projection of a large.

    The range finder of Halko, Martinsson and Tropp (2011), section 4.1.
    """
    if min(matrix.shape) <= _SMALL:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        return left, values, right
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(matrix.shape[1], _RATIO * _HIGHEST + 8, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(matrix @ probes.to(matrix.device)).Q
    left, values, right = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ left, values, right


def rank_of(values: Tensor) -> int:
    """Return how many singular values stand out from rounding and measurement; 0 where none does."""
    return int((values > 1e-6 * values[0]).sum()) if len(values) and float(values[0]) > 0 else 0
