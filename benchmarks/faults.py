"""A table of the kinds of fault; each turns a right Jacobian into a wrong backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from benchmarks.planting import Claim, linear
from benchmarks.subject import Subject

SCALES = tuple(10.0**-power for power in range(1, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One wrong backward."""

    claim: Claim
    element: tuple[int, int] | None = None  # (output, input) of the single wrong entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault at one size; `plant` returns None if it cannot occur in the subject."""

    kind: str
    scale: float | None
    plant: Callable[[Subject, Generator], Plan | None]


def _change_all(change: Callable[[Subject, Tensor], Tensor | None]) -> Callable[[Subject, Generator], Plan | None]:
    def plant(subject: Subject, generator: Generator) -> Plan | None:
        wrong = change(subject, subject.jacobian.clone())
        return None if wrong is None else Plan(claim=linear(wrong))

    return plant


def _change_one(
    candidates: Callable[[Tensor], Tensor], change: Callable[[Tensor, int, int], float]
) -> Callable[[Subject, Generator], Plan | None]:
    def plant(subject: Subject, generator: Generator) -> Plan | None:
        places = (candidates(subject.jacobian) & subject.defined).nonzero().tolist()
        if not places:
            return None
        row, column = places[int(torch.randint(len(places), (), generator=generator))]
        wrong = subject.jacobian.clone()
        wrong[row, column] = change(subject.jacobian, row, column)
        return Plan(claim=linear(wrong), element=(row, column))

    return plant


def _sizes(low: float, high: float) -> Callable[[Tensor], Tensor]:
    """Return a mask function: True where |entry| / max|row| lies in (low, high]."""

    def chosen(jacobian: Tensor) -> Tensor:
        share = jacobian.abs() / jacobian.abs().amax(dim=1, keepdim=True).clamp(min=1e-300)
        return (share > low) & (share <= high)

    return chosen


def _nonzero(jacobian: Tensor) -> Tensor:
    return jacobian != 0


def _zero_beside_others(jacobian: Tensor) -> Tensor:
    """Mask of zeros in a row and a column that have non-zero entries."""
    return (jacobian == 0) & (jacobian != 0).any(1, keepdim=True) & (jacobian != 0).any(0, keepdim=True)


def _scaled(factor: float) -> Callable[[Tensor, int, int], float]:
    return lambda jacobian, row, column: float(jacobian[row, column]) * factor


def _filled(size: float) -> Callable[[Tensor, int, int], float]:
    def value(jacobian: Tensor, row: int, column: int) -> float:
        return size * float(torch.minimum(jacobian[row].abs().max(), jacobian[:, column].abs().max()))

    return value


def _swapped_inputs(subject: Subject, wrong: Tensor) -> Tensor | None:
    for first, left in enumerate(subject.inputs):
        for right in subject.inputs[first + 1 :]:
            if left.shape == right.shape and left.tensor != right.tensor:
                a, b = wrong[:, left.coordinates].clone(), wrong[:, right.coordinates].clone()
                wrong[:, left.coordinates], wrong[:, right.coordinates] = b, a
                return wrong
    return None


def _transposed(subject: Subject, wrong: Tensor) -> Tensor | None:
    square = [block for block in subject.inputs if len(block.shape) >= 2 and block.shape[-1] == block.shape[-2]]
    for block in square:
        part = wrong[:, block.coordinates].reshape(len(wrong), *block.shape)
        wrong[:, block.coordinates] = part.mT.reshape(len(wrong), -1)
    return wrong if square else None


def _rolled(subject: Subject, wrong: Tensor) -> Tensor:
    for block in subject.inputs:
        wrong[:, block.coordinates] = wrong[:, block.coordinates].roll(1, dims=1)
    return wrong


def _missing_sum(subject: Subject, wrong: Tensor) -> Tensor | None:
    """Keep only the first output of each input that affects several outputs."""
    several = (wrong != 0).sum(0) > 1
    later = (wrong != 0).cumsum(0) > 1
    wrong[later & several] = 0
    return wrong if bool(several.any()) else None


def _mean_for_sum(subject: Subject, wrong: Tensor) -> Tensor | None:
    return wrong / len(wrong) if len(wrong) > 1 else None


def _sum_for_mean(subject: Subject, wrong: Tensor) -> Tensor | None:
    return wrong * subject.point.numel() if subject.point.numel() > 1 else None


def _detached(subject: Subject, wrong: Tensor) -> Tensor | None:
    wrong[:, subject.inputs[-1].coordinates] = 0
    return wrong if len(subject.inputs) > 1 else None


def _branch(subject: Subject, wrong: Tensor) -> Tensor | None:
    region = subject.point < subject.point.median()
    wrong[:, region] = 0
    return wrong if bool(region.any()) else None


def _leaky_branch(subject: Subject, wrong: Tensor) -> Tensor | None:
    region = subject.point > subject.point.median()
    wrong[:, region] *= 1.01
    return wrong if bool(region.any()) else None


def _unconjugated(subject: Subject, wrong: Tensor) -> Tensor | None:
    imaginary = [block for block in subject.inputs if block.name.endswith(".imag")]
    for block in imaginary:
        wrong[:, block.coordinates] *= -1
    return wrong if imaginary else None


def _cotangent_ignored(subject: Subject, generator: Generator) -> Plan | None:
    """Ignore the cotangent, as if it were ones, for inputs above the median."""
    region = subject.point >= subject.point.median()
    fixed = subject.jacobian.sum(0)
    return Plan(claim=lambda cotangent: torch.where(region, fixed, cotangent @ subject.jacobian))


def _offset(size: float) -> Callable[[Subject, Generator], Plan | None]:
    def plant(subject: Subject, generator: Generator) -> Plan | None:
        offset = size * subject.jacobian.abs().amax(0)
        return Plan(claim=lambda cotangent: cotangent @ subject.jacobian + offset)

    return plant


def _proportional_offset(size: float) -> Callable[[Subject, Tensor], Tensor]:
    return lambda subject, wrong: wrong + size * wrong.abs().amax(0) * torch.ones(len(wrong), 1, dtype=wrong.dtype)


def _times(factor: float) -> Callable[[Subject, Tensor], Tensor]:
    return lambda subject, wrong: wrong * factor


def _rounded(dtype: torch.dtype) -> Callable[[Subject, Tensor], Tensor]:
    return lambda subject, wrong: wrong.to(dtype).to(torch.float64)


def _last_row(factor: float) -> Callable[[Subject, Tensor], Tensor]:
    def change(subject: Subject, wrong: Tensor) -> Tensor:
        wrong[-1] *= factor
        return wrong

    return change


FAULTS: tuple[Fault, ...] = (
    *(Fault(kind="all × (1+s)", scale=s, plant=_change_all(_times(1 + s))) for s in SCALES),
    *(Fault(kind="one × (1+s)", scale=s, plant=_change_one(_nonzero, _scaled(1 + s))) for s in SCALES),
    *(
        Fault(
            kind="one of 1e-6…1e-3 of its row × (1+s)", scale=s, plant=_change_one(_sizes(1e-6, 1e-3), _scaled(1 + s))
        )
        for s in SCALES[:6]
    ),
    *(
        Fault(kind="one below 1e-6 of its row × (1+s)", scale=s, plant=_change_one(_sizes(1e-12, 1e-6), _scaled(1 + s)))
        for s in SCALES[:4]
    ),
    *(Fault(kind="zero filled with s", scale=s, plant=_change_one(_zero_beside_others, _filled(s))) for s in SCALES),
    *(Fault(kind="offset of s whatever the cotangent", scale=s, plant=_offset(s)) for s in SCALES[:6]),
    *(
        Fault(kind="offset of s times the cotangents", scale=s, plant=_change_all(_proportional_offset(s)))
        for s in SCALES[:6]
    ),
    Fault(kind="one × -1", scale=None, plant=_change_one(_nonzero, _scaled(-1))),
    Fault(kind="one × 0", scale=None, plant=_change_one(_nonzero, _scaled(0))),
    Fault(kind="all × -1", scale=None, plant=_change_all(_times(-1))),
    Fault(kind="all × 0", scale=None, plant=_change_all(_times(0))),
    Fault(kind="all × 2", scale=None, plant=_change_all(_times(2))),
    Fault(kind="last output × 2", scale=None, plant=_change_all(_last_row(2))),
    Fault(kind="swapped inputs", scale=None, plant=_change_all(_swapped_inputs)),
    Fault(kind="transposed", scale=None, plant=_change_all(_transposed)),
    Fault(kind="rolled inputs", scale=None, plant=_change_all(_rolled)),
    Fault(kind="rolled outputs", scale=None, plant=_change_all(lambda _, j: j.roll(1, 0))),
    Fault(kind="missing broadcast sum", scale=None, plant=_change_all(_missing_sum)),
    Fault(kind="mean for sum", scale=None, plant=_change_all(_mean_for_sum)),
    Fault(kind="sum for mean", scale=None, plant=_change_all(_sum_for_mean)),
    Fault(kind="detached input", scale=None, plant=_change_all(_detached)),
    Fault(kind="zero in a region", scale=None, plant=_change_all(_branch)),
    Fault(kind="1 % too large in a region", scale=None, plant=_change_all(_leaky_branch)),
    Fault(kind="unconjugated", scale=None, plant=_change_all(_unconjugated)),
    Fault(kind="cotangent forgotten in a region", scale=None, plant=_cotangent_ignored),
    Fault(kind="rounded to float32", scale=None, plant=_change_all(_rounded(torch.float32))),
    Fault(kind="rounded to bfloat16", scale=None, plant=_change_all(_rounded(torch.bfloat16))),
)


def limit_fault(limit: float) -> Fault:
    """Return the fault of one entry that is twice as wrong as the printed detection limit."""
    return Fault(kind="one × (1 + 2·limit)", scale=None, plant=_change_one(_nonzero, _scaled(1 + 2 * limit)))
