"""Missing or wrong term: the error is diagonal, off-diagonal, of low rank or like a tensor, or entries are left out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.model.magnitudes import TINY
from gradverify.diagnosis.block.entries import CLOSE, BlockEntries
from gradverify.diagnosis.block.structure import all_slices, is_every_nth
from gradverify.diagnosis.naming.constants import known_constant, number_text
from gradverify.diagnosis.naming.region import AxisMasks
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.diagnosis.naming.wording import differ_text, element_name, listed
from gradverify.diagnosis.projections.sums import RandomProjections
from gradverify.diagnosis.tuning import AGREEING, EQUAL_FACTORS, VARIES
from gradverify.evidence import Diagnosis

MISSING_TERM = "missing-term"
MAX_DENSE = 256  # smaller side of a matrix up to which all singular values are computed
_MAX_RANK = 16  # largest rank of the error sought in a larger block
_RANK_RATIO = 3  # least quotient of the ranks of the numeric Jacobian and the error
_BREADTH = 4  # nonzero rows and columns of the error required per unit of rank
_ROUNDS = 8  # of label propagation; if the labels still change then, the whole pattern is returned as one component
_MAX_RANK_IN_SUMS = 2  # largest rank of an error that so few sums can establish
_SMALL = 1e-3  # of the largest singular value: smaller ones count as zero
_MAX_RIGHT = 0.2  # largest share of right columns, and rows, among those chosen at random


def missing_term(seen: BlockEntries) -> Diagnosis | None:
    """Detect an error that is diagonal, off-diagonal or of much lower rank than the numeric Jacobian."""
    return _on_or_off_diagonal(seen) or _of_low_rank(seen)


def _on_or_off_diagonal(seen: BlockEntries) -> Diagnosis | None:
    if seen.block.of.shape != seen.block.wrt.shape or len(seen.wrong) <= 2:
        return None
    diagonal = torch.eye(len(seen.wrong), dtype=torch.bool, device=seen.wrong.device)
    off_diagonal = seen.nonzero & ~diagonal
    if not bool(off_diagonal.any()):
        return None
    if not bool((seen.wrong & diagonal).any()) and not bool(((seen.claimed != 0) & ~diagonal).any()):
        text = "analytic = numeric on the diagonal and 0 elsewhere: the terms between different elements are missing"
        return seen.explained(seen.numeric.masked_fill(~diagonal, 0.0), MISSING_TERM, text)
    right = off_diagonal & ~seen.wrong
    if bool((seen.wrong & ~diagonal).any()) or int(seen.wrong.sum()) <= 2 or int(right.sum()) <= len(diagonal):
        return None
    text = "only the diagonal differs: a term in which each element enters its own output alone is wrong or missing"
    return seen.explained(torch.where(diagonal, seen.claimed, seen.numeric), MISSING_TERM, text)


def _of_low_rank(seen: BlockEntries) -> Diagnosis | None:
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    low_rank, ranks = torch.zeros_like(error), []
    for place in _connected_components((seen.claimed != 0) | seen.nonzero | seen.wrong):
        if bool(seen.wrong[place].any()):
            approximation = _low_rank_part(error[place], seen.numeric[place])
            if approximation is None:
                return None
            low_rank[place] = approximation[0]
            ranks.append(approximation[1])
    return seen.explained(seen.numeric + low_rank, MISSING_TERM, low_rank_text(max(ranks), len(ranks)))


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
    where, over = f"in each of {times} parts that do not depend on each other, ", "the part"
    if times == 1:
        where, over = "", "all elements"
    if rank == 1:
        return f"{where}analytic - numeric is one outer product: a sum over {over} is missing or wrong"
    return f"{where}analytic - numeric is of rank {rank}: terms with {rank} sums over {over} are missing or wrong"


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the SVD of a small matrix, or a randomised SVD of a large one.

    The range finder of Halko, Martinsson and Tropp (2011), section 4.1.
    """
    if min(matrix.shape) <= MAX_DENSE:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        return left, values, right
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(matrix.shape[1], _RANK_RATIO * _MAX_RANK + 8, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(matrix @ probes.to(matrix.device)).Q
    left, values, right = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ left, values, right


def rank_of(values: Tensor, least: float = 1e-6) -> int:
    """Return the number of singular values (k,) above `least` times the largest, 0 for a zero matrix."""
    return int((values > least * values[0]).sum()) if len(values) else 0


def missing_path(seen: BlockEntries) -> Diagnosis | None:
    """Detect several entries that are wrongly claimed to be zero, beside several right ones."""
    lost, right = int(seen.wrong.sum()), int((seen.nonzero & ~seen.wrong).sum())
    if lost < AGREEING or right < AGREEING or bool((seen.wrong & (seen.claimed != 0)).any()):
        return None
    count = f"{lost} of the {int(seen.nonzero.sum())} entries that are not zero"
    location = _location(seen, Axis.INPUT) or _location(seen, Axis.OUTPUT)
    text = f"analytic = 0 in {count}{location}, and right in the others: part of the derivative is left out"
    return seen.explained(seen.numeric.masked_fill(seen.wrong, 0.0), MISSING_TERM, text)


def _location(seen: BlockEntries, axis: Axis) -> str:
    """Return ", those by x[:, 4:8]" if exactly the nonzero entries of these elements are lost, else ""."""
    wrong, kept = seen.wrong.any(axis.across), (seen.nonzero & ~seen.wrong).any(axis.across)
    if bool((wrong & kept).any()):
        return ""
    block, preposition = block_along(seen.block, axis), "by" if axis is Axis.INPUT else "of"
    text = _index_text(AxisMasks(evidence=seen.block, axis=axis, wrong=wrong, relevant=wrong | kept))
    names = [element_name(block, at) for at in wrong.nonzero().flatten().tolist()]
    return f", those {preposition} {text or listed(names)}"


def _index_text(group: AxisMasks) -> str:
    """Return a slice along one dimension, with or without a step, that holds exactly the wrong elements; else ""."""
    for slices in all_slices(group):
        start, stop = min(slices.wrong), max(slices.wrong) + 1
        text = ""
        if stop - start < slices.size and slices.wrong == slices.relevant & {*range(start, stop)}:
            text = f"{start or ''}:{stop if stop < slices.size else ''}"
        elif steps := [step for step in range(2, slices.size // 2 + 1) if is_every_nth(slices, step)]:
            text = f"{start % steps[0] or ''}::{steps[0]}"
        if text:
            places = (text if at == slices.dimension else ":" for at in range(len(group.block.shape)))
            return f"{group.block.name}[{', '.join(places)}]"
    return ""


def _connected_components(live: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the rows (k, 1) and columns (1, l) of each connected component of the sparsity pattern `live` (m, n) bool.

    Every row starts with its own index as label. Rows and columns take the smallest label they are connected to until
    the labels no longer change. Empty rows and columns are in no component.
    """
    rows, unlabelled = torch.arange(len(live), device=live.device), len(live)
    for _ in range(_ROUNDS):
        columns = torch.where(live, rows.unsqueeze(1), unlabelled).amin(dim=0)
        lowest = torch.where(live, columns.unsqueeze(0), unlabelled).amin(dim=1)
        if torch.equal(lowest, rows.masked_fill(~live.any(dim=1), unlabelled)):
            labels = torch.unique(lowest[lowest < unlabelled]).tolist()
            return [((lowest == label).nonzero(), (columns == label).nonzero().T) for label in labels]
        rows = torch.minimum(lowest, rows)
    return [(live.any(dim=1).nonzero(), live.any(dim=0).nonzero().T)]


def missing_term_in_sums(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose an error of low rank in most columns and most rows."""
    claimed, numeric = projections.claimed, projections.numeric
    for sample in (projections.columns, projections.rows):
        random = sample[: projections.random_count]
        if sum(each.right for each in random) > _MAX_RIGHT * len(random):
            return None
    rank = _rank_of_sums(claimed - numeric.value, numeric.bar)
    if not 1 <= rank <= _MAX_RANK_IN_SUMS or _rank_of_sums(numeric.value, numeric.bar) < _RANK_RATIO * rank:
        return None
    return Diagnosis(cause=MISSING_TERM, explanation=low_rank_text(rank), share=1.0)


def _rank_of_sums(sums: Tensor, bar: Tensor) -> int:
    """Return the rank of a matrix from its random projections, each (K, L); 0 if their error bars are too large."""
    if not bool(torch.isfinite(sums + bar).all()):
        return 0
    scale = sums.square().mean(1, keepdim=True).sqrt().clamp(min=TINY)
    values = torch.linalg.svdvals(sums / scale)
    is_clear = bool(torch.linalg.matrix_norm(bar / scale) <= _SMALL * values[0])
    return rank_of(values, _SMALL) if is_clear else 0


def missing_summand(seen: BlockEntries) -> Diagnosis | None:
    """Detect an error of k or k·t in every wrong entry, with a tensor t and one number k, or one per row or column."""
    count = differ_text(int(seen.wrong.sum()), int((seen.nonzero | seen.wrong).sum()), "entries")
    for pattern, name in _summands(seen):
        error = _multiple(seen, pattern, (0, 1))
        if error is not None:
            factor = float((error / pattern)[seen.wrong].median())
            summand = f"{'+' if factor > 0 else '-'} {_written(abs(factor), name)}"
            text = f"{count}; analytic = numeric {summand}: a summand is missing or too many"
            found = seen.explained(seen.numeric + factor * pattern, MISSING_TERM, text)
            if found is not None:
                return found
    for axis, line in ((Axis.INPUT, "output"), (Axis.OUTPUT, "input")):
        for pattern, name, where in _summands_by_line(seen, axis):
            error = _multiple(seen, pattern, (axis.value,))
            if error is not None:
                error_is = f"{name}{where} times a number" if name else "a number"
                kind = f"goes with {name}" if name else f"is one number in all wrong entries of an {line}"
                text = f"{count}; analytic - numeric is {error_is} of each {line}'s own"
                text = f"{text}: a term that {kind} is missing or too many"
                return seen.explained(seen.numeric + error, MISSING_TERM, text)
    return None


def _summands(seen: BlockEntries) -> Iterator[tuple[Tensor, str]]:
    """Yield patterns (m, n) of which the error may be a multiple, each with the name of its tensor."""
    if int(seen.wrong.sum()) < AGREEING:
        return
    yield torch.ones_like(seen.numeric) * seen.wrong, ""
    of_single_output = total(seen.block.of.shape) == 1
    if of_single_output or seen.is_elementwise:
        for tensor in seen.tensors_along(Axis.INPUT):
            if len(torch.unique(tensor.values)) >= AGREEING:
                yield tensor.values.unsqueeze(0) if of_single_output else torch.diag(tensor.values), tensor.name


def _summands_by_line(seen: BlockEntries, axis: Axis) -> Iterator[tuple[Tensor, str, str]]:
    """Yield patterns (m, n) that lines along an axis may be multiples of, each with its tensor's name and dimensions.

    A tensor has to vary over the wrong entries of each line, and these must not be few; otherwise one multiple fits by
    chance.
    """
    count = seen.wrong.sum(axis.value)
    wrong_lines = count > 0
    if int(wrong_lines.sum()) < 2 or bool((count < AGREEING)[wrong_lines].any()):
        return
    yield torch.ones_like(seen.numeric), "", ""
    for tensor in seen.tensors_along(axis):
        size = tensor.broadcast.abs().expand_as(seen.numeric)
        smallest = size.masked_fill(~seen.wrong, math.inf).amin(axis.value)
        largest = size.masked_fill(~seen.wrong, 0.0).amax(axis.value)
        if bool((largest > (1 + VARIES) * smallest)[wrong_lines].all()):
            yield tensor.broadcast.expand_as(seen.numeric), tensor.name, tensor.where


def _multiple(seen: BlockEntries, pattern: Tensor, across: tuple[int, ...]) -> Tensor | None:
    """Return the error (m, n) fitted by multiples of a pattern (m, n), one in each line across these dimensions.

    Returns None if the fit is not exact in all wrong entries, or if the pattern is zero in one. So too if the numeric
    entries are multiples as well, because then any factor in each line would fit.
    """
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    expected = pattern.masked_fill(~seen.wrong, 0.0)
    if bool((expected == 0)[seen.wrong].any()):
        return None
    size = expected.square().sum(across, keepdim=True).clamp(min=TINY)
    of_error, of_numeric = (
        (entries * expected).sum(across, keepdim=True) / size * expected for entries in (error, seen.numeric)
    )
    slack = EQUAL_FACTORS * error.abs() + torch.minimum(seen.slack, CLOSE * error.abs())
    if bool(((seen.numeric - of_numeric).abs() <= slack)[seen.wrong].all()):
        return None
    return of_error if bool(((error - of_error).abs() <= slack)[seen.wrong].all()) else None


def _written(factor: float, name: str) -> str:
    known = known_constant(factor, EQUAL_FACTORS)
    text = known.text if known is not None else number_text(factor)
    if name and math.isclose(factor, 1.0, rel_tol=EQUAL_FACTORS):
        return name
    return f"{text} × {name}" if name else text
