"""GV301–GV305: backward is linear in its cotangents, whatever else it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Answer, Subject, ask, zero_except
from gradverify.checks.contract.wording import SIMILAR, allowance, differences, minus, scaled
from gradverify.result import Finding, Verdict

_FACTORS = (0.7310585786300049, -1.3862943611198906)  # of a combination: no powers of two
_ALONE = 6  # outputs asked one by one, at most
# exponents of two that the dtype has room for
_EXPONENTS = {torch.float64: 20, torch.complex128: 20, torch.float16: 3, torch.complex32: 3}
_SINGLE = 12  # float32, complex64 and bfloat16


def zero_for_zero(subject: Subject) -> Iterator[Finding]:
    """GV302: B(0) = 0."""
    for number, constant in enumerate(subject.constant):
        allowed = allowance(subject, number, 1.0, subject.answer[number])
        wrong = ~(constant.abs() <= allowed * 1e-3) & subject.answer[number].isfinite()
        if not bool(wrong.any()):
            continue
        name = subject.primals[number].name
        entries = f"{int(wrong.sum())} of {constant.numel()} entries by {name}"
        why = (
            f"the largest {largest(constant):.6g}: a term forgets to multiply by the cotangent"
            if bool(constant[wrong].isfinite().all())
            else "not finite: it divides by the cotangent's size"
        )
        text = f"backward of a zero cotangent is not zero in {entries}, {why}"
        yield Finding(code="GV302", verdict=Verdict.FAIL, wrt=name, message=text, total=int(wrong.sum()))


def one_output_at_a_time(subject: Subject) -> Iterator[Finding]:
    """GV303–GV305: B(-g) = -B(g), B(2^k g) = 2^k B(g), and outputs do not interact."""
    count = len(subject.cotangents)
    alone = []
    for number in range(min(count, _ALONE)):
        cotangents = zero_except(subject, number)
        answer = subject.answer if count == 1 else ask(subject, cotangents)
        alone.append(answer)
        yield from _homogeneous(subject, cotangents, answer, subject.tape.outputs[number].name)
    if 1 < count <= _ALONE:
        yield from _additive(subject, alone)
    elif count > _ALONE:
        yield from _additive(subject, [ask(subject, half) for half in _halves(subject)])


def combination(subject: Subject) -> Iterator[Finding]:
    """GV301: B(a·g + b·1) = a·B(g) + b·B(1); ones are what `.sum().backward()` sends, and no random cotangent is."""
    a, b = _FACTORS
    mixed = ask(subject, [a * g + b for g in subject.cotangents])
    first, second = _linear(subject, subject.answer), _linear(subject, subject.ones)
    expected = tuple(a * one + b * other for one, other in zip(first, second, strict=True))
    claim = "backward is not linear: B(a·g + b·1) is not a·B(g) + b·B(1), where 1 is what y.sum() asks for"
    yield from differences(subject, "GV301", claim, _linear(subject, mixed), expected, power=SIMILAR)


def entries_apart(subject: Subject) -> Iterator[Finding]:
    """GV301: B(g) is what it says of every second entry of g, with zeros in between, and of the rest."""
    if not any(cotangent.numel() > 1 for cotangent in subject.cotangents):
        return
    parts = [_linear(subject, ask(subject, _every_second(subject, parity))) for parity in (0, 1)]
    expected = tuple(one + other for one, other in zip(*parts, strict=True))
    claim = (
        "backward is not linear: B(g) is not what B says of every second entry of g, zeros beside it, and of the rest"
    )
    yield from differences(subject, "GV301", claim, _linear(subject, subject.answer), expected, power=SIMILAR)


def _every_second(subject: Subject, parity: int) -> tuple[Tensor, ...]:
    return tuple(
        torch.where((torch.arange(g.numel(), device=g.device) % 2 == parity).view(g.shape), g, 0)
        for g in subject.cotangents
    )


def _homogeneous(subject: Subject, cotangents: Sequence[Tensor], answer: Answer, output: str) -> Iterator[Finding]:
    linear = _linear(subject, answer)
    opposite = ask(subject, [-cotangent for cotangent in cotangents])
    claim = f"backward is not odd: B(-g) is not -B(g), g the cotangent of {output}"
    found = [*differences(subject, "GV303", claim, _linear(subject, opposite), scaled(linear, -1.0), power=SIMILAR)]
    yield from found
    if found:
        return  # what is not odd does not scale either
    for exponent in (_exponent(subject), -_exponent(subject)):
        factor = 2.0**exponent
        grown = ask(subject, [cotangent * factor for cotangent in cotangents])
        claim = f"backward does not scale: B(2^{exponent}·g) is not 2^{exponent}·B(g), g the cotangent of {output}"
        expected = scaled(linear, factor)
        got = tuple(
            torch.where(entry.isinf(), wanted, entry)  # an overflow has a name of its own
            for entry, wanted in zip(_linear(subject, grown), expected, strict=True)
        )
        found = [*differences(subject, "GV304", claim, got, expected, size=factor, power=SIMILAR)]
        yield from found
        if found:
            return


def _additive(subject: Subject, parts: Sequence[Answer]) -> Iterator[Finding]:
    linear = [_linear(subject, part) for part in parts]
    expected = tuple(torch.stack(entries).sum(0) for entries in zip(*linear, strict=True))
    claim = "outputs interact: B(g1, g2) is not B(g1, 0) + B(0, g2)"
    yield from differences(subject, "GV305", claim, _linear(subject, subject.answer), expected, power=SIMILAR)


def _linear(subject: Subject, answer: Answer) -> Answer:
    """Take away what a zero cotangent gets, so that one mistake has one name."""
    return minus(answer, tuple(constant.nan_to_num(0.0, 0.0, 0.0) for constant in subject.constant))


def _halves(subject: Subject) -> tuple[tuple[Tensor, ...], ...]:
    return tuple(
        tuple(g if number % 2 == parity else torch.zeros_like(g) for number, g in enumerate(subject.cotangents))
        for parity in (0, 1)
    )


def _exponent(subject: Subject) -> int:
    return min(_EXPONENTS.get(dtype, _SINGLE) for dtype in subject.dtypes)
