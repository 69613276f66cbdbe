"""GV301–GV305: backward is linear in its cotangents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Coordinates, Subject, gradients_for, zero_except
from gradverify.checks.contract.wording import SIMILAR_EXPONENT, allowance, difference, mismatches, scaled
from gradverify.result import Finding, Verdict

_FACTORS = (0.7310585786300049, -1.3862943611198906)  # of the combination; not powers of two, so that products round
_MAX_OUTPUTS = 6  # largest number of outputs tested one by one
# Exponents k of the factor 2**k in GV304, small enough that the dtype does not overflow.
_EXPONENTS = {torch.float64: 20, torch.complex128: 20, torch.float16: 3, torch.complex32: 3}
_DEFAULT_EXPONENT = 12  # float32, complex64 and bfloat16


def zero_for_zero(subject: Subject) -> Iterator[Finding]:
    """GV302: B(0) = 0."""
    for number, constant in enumerate(subject.gradients_of_zeros):
        allowed = allowance(subject, number, 1.0, subject.gradients[number])
        wrong = ~(constant.abs() <= allowed * 1e-3) & subject.gradients[number].isfinite()
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
    """GV303–GV305: B(-g) = -B(g), B(2^k g) = 2^k B(g), and B is additive over the outputs."""
    count = len(subject.cotangents)
    single = []
    for number in range(min(count, _MAX_OUTPUTS)):
        cotangents = zero_except(subject, number)
        answer = subject.gradients if count == 1 else gradients_for(subject, cotangents)
        single.append(answer)
        yield from _homogeneity(subject, cotangents, answer, subject.tape.outputs[number].name)
    if 1 < count <= _MAX_OUTPUTS:
        yield from _additivity(subject, single)
    elif count > _MAX_OUTPUTS:
        yield from _additivity(subject, [gradients_for(subject, half) for half in _halves(subject)])


def combination(subject: Subject) -> Iterator[Finding]:
    """GV301: B(a·g + b·1) = a·B(g) + b·B(1); 1, the cotangent of `.sum()`, is a special case that g misses."""
    a, b = _FACTORS
    mixed = gradients_for(subject, [a * g + b for g in subject.cotangents])
    first, second = _without_constant(subject, subject.gradients), _without_constant(subject, subject.gradients_of_ones)
    expected = tuple(a * one + b * other for one, other in zip(first, second, strict=True))
    claim = "backward is not linear: B(a·g + b·1) is not a·B(g) + b·B(1), where 1 is what y.sum() asks for"
    got = _without_overflow(subject, _without_constant(subject, mixed), expected)
    yield from mismatches(subject, "GV301", claim, got, expected, power=SIMILAR_EXPONENT)


def entries_split(subject: Subject) -> Iterator[Finding]:
    """GV301: B(g) = B(g·mask) + B(g·~mask), mask = every second entry."""
    if not any(cotangent.numel() > 1 for cotangent in subject.cotangents):
        return
    parts = [_without_constant(subject, gradients_for(subject, _every_second(subject, parity))) for parity in (0, 1)]
    expected = tuple(one + other for one, other in zip(*parts, strict=True))
    claim = (
        "backward is not linear: B(g) is not what B says of every second entry of g, zeros beside it, and of the rest"
    )
    got = _without_overflow(subject, _without_constant(subject, subject.gradients), expected)
    yield from mismatches(subject, "GV301", claim, got, expected, power=SIMILAR_EXPONENT)


def _every_second(subject: Subject, parity: int) -> tuple[Tensor, ...]:
    return tuple(
        torch.where((torch.arange(g.numel(), device=g.device) % 2 == parity).view(g.shape), g, 0)
        for g in subject.cotangents
    )


def _homogeneity(subject: Subject, cotangents: Sequence[Tensor], answer: Coordinates, output: str) -> Iterator[Finding]:
    linear = _without_constant(subject, answer)
    opposite = gradients_for(subject, [-cotangent for cotangent in cotangents])
    claim = f"backward is not odd: B(-g) is not -B(g), g the cotangent of {output}"
    found = [
        *mismatches(
            subject, "GV303", claim, _without_constant(subject, opposite), scaled(linear, -1.0), power=SIMILAR_EXPONENT
        )
    ]
    yield from found
    if found:
        return  # a backward that is not odd is not reported again for its scaling
    for exponent in (_exponent(subject), -_exponent(subject)):
        factor = 2.0**exponent
        scaled_up = gradients_for(subject, [cotangent * factor for cotangent in cotangents])
        claim = f"backward does not scale: B(2^{exponent}·g) is not 2^{exponent}·B(g), g the cotangent of {output}"
        expected = scaled(linear, factor)
        got = _without_overflow(subject, _without_constant(subject, scaled_up), expected)
        found = [*mismatches(subject, "GV304", claim, got, expected, size=factor, power=SIMILAR_EXPONENT)]
        yield from found
        if found:
            return


def _additivity(subject: Subject, parts: Sequence[Coordinates]) -> Iterator[Finding]:
    linear = [_without_constant(subject, part) for part in parts]
    expected = tuple(torch.stack(entries).sum(0) for entries in zip(*linear, strict=True))
    claim = "outputs interact: B(g1, g2) is not B(g1, 0) + B(0, g2)"
    yield from mismatches(
        subject, "GV305", claim, _without_constant(subject, subject.gradients), expected, power=SIMILAR_EXPONENT
    )


def _without_constant(subject: Subject, answer: Coordinates) -> Coordinates:
    """Return the gradients minus B(0), so that only GV302 reports a constant term."""
    return difference(answer, tuple(constant.nan_to_num(0.0, 0.0, 0.0) for constant in subject.gradients_of_zeros))


def _without_overflow(subject: Subject, got: Coordinates, expected: Coordinates) -> Coordinates:
    """Return the gradients with what is expected where an overflow, which is not reported here, leaves no number."""
    found = []
    for primal, entry, wanted in zip(subject.primals, got, expected, strict=True):
        overflows = bool((wanted.abs() > torch.finfo(primal.tensor.dtype).max).any())
        found.append(torch.where(entry.isinf() | (entry.isnan() & overflows), wanted, entry))
    return tuple(found)


def _halves(subject: Subject) -> tuple[tuple[Tensor, ...], ...]:
    return tuple(
        tuple(g if number % 2 == parity else torch.zeros_like(g) for number, g in enumerate(subject.cotangents))
        for parity in (0, 1)
    )


def _exponent(subject: Subject) -> int:
    return min(_EXPONENTS.get(dtype, _DEFAULT_EXPONENT) for dtype in subject.dtypes)
