"""Missing or wrong term: the error is diagonal, off-diagonal, or of low rank."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.diagnosis.block.blocks_diagonal import connected_components
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.naming.wording import share_text
from gradverify.evidence import Diagnosis, Evidence

MISSING_TERM = "missing-term"
_MAX_DENSE = 256  # smaller side of a matrix up to which the full SVD is computed
_MAX_RANK = 16  # largest rank of the error sought in a larger block
_RANK_RATIO = 3  # least quotient of the ranks of the numeric Jacobian and the error
_BREADTH = 4  # nonzero rows and columns of the error required per unit of rank


def missing_term(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect an error that is diagonal, off-diagonal or of much lower rank than the numeric Jacobian."""
    if evidence.of.shape == evidence.wrt.shape and seen.wrong.shape[0] > 2:
        found = _on_or_off_diagonal(seen)
        if found is not None:
            return found
    return _of_low_rank(seen)


def _on_or_off_diagonal(seen: BlockEntries) -> Diagnosis | None:
    diagonal = torch.eye(len(seen.wrong), dtype=torch.bool, device=seen.wrong.device)
    off_diagonal = ~seen.zero & ~diagonal
    if not bool(off_diagonal.any()):
        return None
    if not bool((seen.wrong & diagonal).any()) and not bool(((seen.claimed != 0) & ~diagonal).any()):
        share = explained_share(seen, seen.numeric.masked_fill(~diagonal, 0.0))
        text = "analytic = numeric on the diagonal and 0 elsewhere: the terms between different elements are missing"
    else:
        right = off_diagonal & ~seen.wrong
        only_diagonal = not bool((seen.wrong & ~diagonal).any()) and int((seen.wrong & diagonal).sum()) > 2
        enough = only_diagonal and int(right.sum()) > len(diagonal)
        share = explained_share(seen, torch.where(diagonal, seen.claimed, seen.numeric)) if enough else None
        text = "only the diagonal differs: a term in which each element enters its own output alone is wrong or missing"
    if share is None:
        return None
    return Diagnosis(cause=MISSING_TERM, explanation=f"{text}{share_text(share)}", share=share)


def _of_low_rank(seen: BlockEntries) -> Diagnosis | None:
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    low_rank, ranks = torch.zeros_like(error), []
    for each in connected_components((seen.claimed != 0) | ~seen.zero | seen.wrong):
        if bool(seen.wrong[each.place].any()):
            approximation = _low_rank_part(error[each.place], seen.numeric[each.place])
            if approximation is None:
                return None
            low_rank[each.place] = approximation[0]
            ranks.append(approximation[1])
    share = explained_share(seen, seen.numeric + low_rank)
    if share is None:
        return None
    return Diagnosis(
        cause=MISSING_TERM, explanation=f"{low_rank_text(max(ranks), len(ranks))}{share_text(share)}", share=share
    )


def _low_rank_part(error: Tensor, numeric: Tensor) -> tuple[Tensor, int] | None:
    """Return the low-rank approximation (k, l) of the error and its rank; None if the rank is too high for a term."""
    breadth = min(int((error != 0).any(0).sum()), int((error != 0).any(1).sum()))
    if breadth < _BREADTH:
        return None
    left, values, right = _svd(error)
    rank = rank_of(values)
    if rank == 0 or breadth < _BREADTH * rank or _RANK_RATIO * rank > rank_of(_svd(numeric)[1]):
        return None
    return (left[:, :rank] * values[:rank]) @ right[:rank], rank


def low_rank_text(rank: int, times: int = 1) -> str:
    """Return the explanation of an error of low rank, in the whole block or in each of `times` independent parts."""
    where, over = ("", "all elements")
    if times > 1:
        where, over = f"in each of {times} parts that do not depend on each other, ", "the part"
    if rank == 1:
        return f"{where}analytic - numeric is one outer product: a sum over {over} is missing or wrong"
    return f"{where}analytic - numeric is of rank {rank}: terms with {rank} sums over {over} are missing or wrong"


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the SVD of a small matrix, or a randomised SVD of a large one.

    The range finder of Halko, Martinsson and Tropp (2011), section 4.1.
    """
    if min(matrix.shape) <= _MAX_DENSE:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        return left, values, right
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(matrix.shape[1], _RANK_RATIO * _MAX_RANK + 8, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(matrix @ probes.to(matrix.device)).Q
    left, values, right = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ left, values, right


def rank_of(values: Tensor) -> int:
    """Return the number of singular values (k,) above 1e-6 of the largest, 0 for a zero matrix."""
    return int((values > 1e-6 * values[0]).sum()) if len(values) and float(values[0]) > 0 else 0
