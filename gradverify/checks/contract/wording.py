"""Findings of the contract check: comparison of gradients, their tolerance, and the messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Coordinates, Subject
from gradverify.checks.wording import distinguishable
from gradverify.core.model.coordinates import Block, blocks, flatten, unravel
from gradverify.errors import EvaluationError
from gradverify.nested import Named
from gradverify.result import Finding, Verdict

SAME_EXPONENT = 0.64  # rtol = eps**SAME for a repeated computation: 1e-10 in float64, 4e-5 in float32
SIMILAR_EXPONENT = 0.5  # rtol = eps**SIMILAR for another computation of the same value: 1.5e-8, 3e-4
_NOISE_FACTOR = 8.0  # allowed, in units of the noise level
_COTANGENT_ULPS = 8.0  # allowed, in eps times the largest cotangent


def failure(code: str, message: str, *, wrt: str | None = None, of: str | None = None) -> Finding:
    """Return a finding that fails the check."""
    return Finding(code=code, verdict=Verdict.FAIL, message=message, wrt=wrt, of=of)


def remark(code: str, message: str, *, wrt: str | None = None, of: str | None = None) -> Finding:
    """Return a finding that does not fail the check: the gradient is right."""
    return Finding(code=code, verdict=Verdict.PASS, message=message, wrt=wrt, of=of)


def mismatches(
    subject: Subject,
    code: str,
    claim: str,
    got: Coordinates,
    expected: Coordinates,
    *,
    size: float = 1.0,
    power: float = SAME_EXPONENT,
    numbers: Sequence[int] | None = None,
) -> Iterator[Finding]:
    """Yield a failing finding for every primal whose gradient in `got` differs from `expected` beyond the allowance.

    `size` is the size of the cotangents relative to the subject's own. `numbers` are the primals' numbers, by default
    all. `power` is the exponent of eps in the tolerance. Entries that are not finite in `expected` are ignored.
    """
    for place, (found, wanted) in enumerate(zip(got, expected, strict=True)):
        if torch.equal(found, wanted):
            continue
        number = place if numbers is None else numbers[place]
        wrong = _mismatch(found, wanted, allowance(subject, number, size, found, wanted, power=power))
        if bool(wrong.any()):
            name = subject.primals[number].name
            text = f"{claim}: {_worst(subject, number, found, wanted, wrong)}"
            yield Finding(code=code, verdict=Verdict.FAIL, wrt=name, message=text, total=int(wrong.sum()))


def allowance(subject: Subject, number: int, size: float, *answers: Tensor, power: float = SAME_EXPONENT) -> float:
    """Return the allowed absolute difference between entries of a primal's gradient."""
    eps = max(torch.finfo(dtype).eps for dtype in subject.dtypes)
    scale = max(max(largest(answer) for answer in answers), size * largest(subject.gradients[number]))
    constant = largest(subject.gradients_of_zeros[number])
    # Terms as large as the cotangent may cancel in the gradient; their rounding error stays.
    cotangent = size * max((largest(flatten([each])) for each in subject.cotangents), default=0.0)
    rounding = 64 * eps * constant + _COTANGENT_ULPS * eps * cotangent
    return float(eps**power * scale + _NOISE_FACTOR * size * subject.noise[number] + rounding)


def difference(left: Coordinates, right: Coordinates) -> Coordinates:
    """Return left - right, tensor by tensor."""
    return tuple(one - other for one, other in zip(left, right, strict=True))


def scaled(answer: Coordinates, factor: float) -> Coordinates:
    """Return factor·answer, tensor by tensor."""
    return tuple(entry * factor for entry in answer)


def raised(error: EvaluationError) -> str:
    """Return `backward raises TypeError: first line of its message`, without a full stop."""
    lines = [line.strip() for line in str(error.original).splitlines() if line.strip()]
    kind = f"{error.stage} raises {type(error.original).__name__}"
    return f"{kind}: {lines[0].rstrip('.')}" if lines else kind


def _mismatch(found: Tensor, wanted: Tensor, allowed: float) -> Tensor:
    """Mask of entries that differ by more than `allowed`, or are NaN; False where `wanted` is not finite."""
    distance = (found - wanted).abs()
    return wanted.isfinite() & ~(distance <= allowed)


def _worst(subject: Subject, number: int, found: Tensor, wanted: Tensor, wrong: Tensor) -> str:
    """Return how many entries are wrong, and the name and values of the worst one."""
    distance = torch.where(wrong, (found - wanted).abs().nan_to_num(torch.inf, torch.inf), -1.0)
    position = int(distance.argmax())
    count = int(wrong.sum())
    noun = "entry" if found.numel() == 1 else "entries"
    entries = f"{count} of {found.numel()} {noun} {'differs' if count == 1 else 'differ'}"
    got, right = distinguishable(float(found[position]), float(wanted[position]))
    return f"{entries} by {subject.primals[number].name}, {place_in(subject, number, position)} is {got}, not {right}"


def place_in(subject: Subject, number: int, position: int) -> str:
    """Return the name of a primal's real coordinate, such as x[2, 0] or z.imag[1]."""
    primal = subject.primals[number]
    found: tuple[Block, ...] = blocks([Named(name=primal.name, tensor=primal.tensor)])
    part, place = (found[position % len(found)], position // len(found)) if found else (None, 0)
    index = ", ".join(map(str, unravel(place, primal.tensor.shape)))
    return f"{part.name if part else primal.name}{f'[{index}]' if index else ''}"
