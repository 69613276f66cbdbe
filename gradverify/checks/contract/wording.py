"""Findings of the contract: what differs, by how much it may, and in which words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Answer, Subject
from gradverify.checks.wording import told_apart
from gradverify.core.model.coordinates import Block, blocks, flatten, unravel
from gradverify.core.model.problem import Named
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

SAME = 0.64  # allowed is eps to this power where the same is computed again: 1e-10 in float64, 4e-5 in float32
SIMILAR = 0.5  # and where another computation is to give the same: 1.5e-8, 3e-4
_NOISY = 8.0  # times the measured noise
_FEW = 8.0  # units of rounding


def accusation(code: str, message: str, *, wrt: str | None = None, of: str | None = None) -> Finding:
    """Return a finding that fails the check."""
    return Finding(code=code, verdict=Verdict.FAIL, message=message, wrt=wrt, of=of)


def remark(code: str, message: str, *, wrt: str | None = None, of: str | None = None) -> Finding:
    """Return a finding that is worth knowing and fails nothing: the gradient is what it should be."""
    return Finding(code=code, verdict=Verdict.PASS, message=message, wrt=wrt, of=of)


def differences(
    subject: Subject,
    code: str,
    claim: str,
    got: Answer,
    expected: Answer,
    *,
    size: float = 1.0,
    power: float = SAME,
    numbers: Sequence[int] | None = None,
) -> Iterator[Finding]:
    """Accuse backward for every primal whose gradient is not as expected, beyond rounding.

    `size` is that of the cotangents relative to the subject's own. `numbers` are the primals that the answers are
    about, `power` is that of eps which is allowed. Entries that are not finite in `expected` are left out.
    """
    for place, (found, wanted) in enumerate(zip(got, expected, strict=True)):
        if torch.equal(found, wanted):
            continue
        number = place if numbers is None else numbers[place]
        wrong = _apart(found, wanted, allowance(subject, number, size, found, wanted, power=power))
        if bool(wrong.any()):
            name = subject.primals[number].name
            text = f"{claim}: {_worst(subject, number, found, wanted, wrong)}"
            yield Finding(code=code, verdict=Verdict.FAIL, wrt=name, message=text, total=int(wrong.sum()))


def allowance(subject: Subject, number: int, size: float, *answers: Tensor, power: float = SAME) -> float:
    """Return by how much entries of a primal's gradient may differ."""
    eps = max(torch.finfo(dtype).eps for dtype in subject.dtypes)
    scale = max(max(largest(answer) for answer in answers), size * largest(subject.answer[number]))
    constant = largest(subject.constant[number])
    # Terms of the cotangent's size may cancel, and leave their own rounding.
    cotangent = size * max((largest(flatten([each])) for each in subject.cotangents), default=0.0)
    rounding = 64 * eps * constant + _FEW * eps * cotangent
    return float(eps**power * scale + _NOISY * size * subject.noise[number] + rounding)


def minus(left: Answer, right: Answer) -> Answer:
    """Return left - right."""
    return tuple(one - other for one, other in zip(left, right, strict=True))


def scaled(answer: Answer, factor: float) -> Answer:
    """Return factor·answer."""
    return tuple(entry * factor for entry in answer)


def raised(error: EvaluationError) -> str:
    """Return `backward raises TypeError: what it says`, without a full stop, for a sentence that goes on."""
    lines = [line.strip() for line in str(error.original).splitlines() if line.strip()]
    kind = f"{error.stage} raises {type(error.original).__name__}"
    return f"{kind}: {lines[0].rstrip('.')}" if lines else kind


def _apart(found: Tensor, wanted: Tensor, allowed: float) -> Tensor:
    distance = (found - wanted).abs()
    return wanted.isfinite() & ~(distance <= allowed)


def _worst(subject: Subject, number: int, found: Tensor, wanted: Tensor, wrong: Tensor) -> str:
    distance = torch.where(wrong, (found - wanted).abs().nan_to_num(torch.inf, torch.inf), -1.0)
    position = int(distance.argmax())
    count = int(wrong.sum())
    noun = "entry" if found.numel() == 1 else "entries"
    entries = f"{count} of {found.numel()} {noun} {'differs' if count == 1 else 'differ'}"
    got, right = told_apart(float(found[position]), float(wanted[position]))
    return f"{entries} by {subject.primals[number].name}, {place_in(subject, number, position)} is {got}, not {right}"


def place_in(subject: Subject, number: int, position: int) -> str:
    """Return the name of a coordinate of a primal: x[2, 0], z.imag[1]."""
    primal = subject.primals[number]
    found: tuple[Block, ...] = blocks([Named(name=primal.name, tensor=primal.tensor)])
    part, place = (found[position % len(found)], position // len(found)) if found else (None, 0)
    index = ", ".join(map(str, unravel(place, primal.tensor.shape)))
    return f"{part.name if part else primal.name}{f'[{index}]' if index else ''}"
