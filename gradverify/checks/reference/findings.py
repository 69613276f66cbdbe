"""What a comparison with a reference has to say: findings with their elements, and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.checks.failures import evaluations
from gradverify.checks.reference.compare import Compared
from gradverify.checks.reference.cotangents import Cotangent
from gradverify.checks.wording import distinguishable, entries_text, index_text
from gradverify.core.model.coordinates import Block, blocks, flatten
from gradverify.core.model.problem import Problem
from gradverify.result import Against, CheckResult, Element, ElementVerdict, Finding, Method, Verdict, worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """What the values of a function are compared with."""

    says: str = "by the reference"  # in front of its value, in a message
    against: Against = Against.REFERENCE


REFERENCE = Other()


def output_findings(found: Compared, keep: int, other: Other = REFERENCE) -> Iterator[Finding]:
    """Yield the findings on an output, one for each of its real blocks with wrong entries; keeps `keep` elements."""
    for block in _wrong_blocks(found):
        worst = _worst_first(found, block)
        finite = not bool(found.not_finite[block.coordinates].any())
        yield Finding(
            code="GV701" if finite else "GV705",
            verdict=Verdict.FAIL,
            of=block.name,
            message=f"{_count(found, block)} of {block.name} {_differ(found, block, finite)}; "
            f"{_worst(found, block, int(worst[0]), other)}",
            total=int(found.wrong[block.coordinates].sum()),
            elements=tuple(_elements(found, block, worst[:keep], of_output=True)),
            against=other.against,
        )


def gradient_findings(
    found: Compared, cotangents: Sequence[Cotangent], keep: int, other: Other = REFERENCE
) -> Iterator[Finding]:
    """Yield the findings on the gradient by an input, one for each of its real blocks with wrong entries."""
    for block in _wrong_blocks(found):
        worst = _worst_first(found, block)
        finite = not bool(found.not_finite[block.coordinates].any())
        given = cotangents[int(found.cotangent[block.coordinates][worst[0]])].name
        gradient = f"the gradient by {block.name}"
        message = (
            f"{_count(found, block)} of {gradient} {_differ(found, block, finite)}; for {given}, "
            f"{_worst(found, block, int(worst[0]), other)}"
        )
        if found.missing:
            message = (
                f"backward returns no gradient for {found.named.name}; {other.says}, it is not zero in "
                f"{entries_text(int(found.wrong[block.coordinates].sum()))}"
            )
        yield Finding(
            code="GV702" if finite else "GV705",
            verdict=Verdict.FAIL,
            wrt=block.name,
            message=message,
            total=int(found.wrong[block.coordinates].sum()),
            elements=tuple(_elements(found, block, worst[:keep], of_output=False)),
            against=other.against,
        )


def unjudged_findings(found: Sequence[Compared], *, of_outputs: bool, other: Other = REFERENCE) -> Iterator[Finding]:
    """Yield an inconclusive finding for each output, or gradient by an input, with entries that cannot be judged."""
    for each in found:
        for block in blocks([each.named]):
            number = int(each.unjudged[block.coordinates].sum())
            if number:
                name = block.name if of_outputs else f"the gradient by {block.name}"
                count = f"{number:,} of {entries_text(each.unjudged[block.coordinates].numel())}"
                message = f"{count} of {name} cannot be judged: {other.says}, it is not finite there or close by"
                yield Finding(
                    code="GV705",
                    verdict=Verdict.INCONCLUSIVE,
                    of=block.name if of_outputs else None,
                    wrt=None if of_outputs else block.name,
                    message=message,
                    total=number,
                    against=other.against,
                )


def lost_findings(found: Sequence[Compared], precision: str, *, of_outputs: bool) -> Iterator[Finding]:
    """Yield an inconclusive finding for each output, or gradient by an input, that rounding may change entirely."""
    for each in found:
        if each.lost and not bool((each.wrong | each.unjudged).any()):
            name = each.named.name if of_outputs else f"the gradient by {each.named.name}"
            yield Finding(
                code="GV701" if of_outputs else "GV702",
                verdict=Verdict.INCONCLUSIVE,
                of=each.named.name if of_outputs else None,
                wrt=None if of_outputs else each.named.name,
                message=f"{name} cannot be judged: rounding in {precision} may change it by as much as it is, and "
                "zeros would pass too; smaller or other inputs tell more",
                total=each.wrong.numel(),
            )


def excess(finding: Finding) -> float:
    """Sort key: the finding with the largest error beside what is allowed first, those without elements last."""
    if not finding.elements:
        return 0.0
    first = finding.elements[0]
    return -first.error / first.allowed if first.allowed else -math.inf


def agreement(found: Sequence[Compared], name: str, cotangents: int) -> str:
    """Return one sentence for a comparison without findings: what agrees, and how small an error would be found."""
    total = sum(each.value.numel() for each in found)
    return f"{entries_text(total)} agree with {name} for {cotangents} cotangents{limits(found)}"


def limits(found: Sequence[Compared]) -> str:
    """Return, to end a sentence, the relative errors that would be found; "" if they are unknown."""
    entry, factor = entry_limit(found), max((each.factor_limit for each in found), default=math.inf)
    if not math.isfinite(entry):
        return ""
    return f"; finds a relative error of {_up(entry)} in an entry of median size and {_up(factor)} in all of a tensor"


def entry_limit(found: Sequence[Compared]) -> float:
    """Return the relative error of an entry of median size that would be found in any tensor; inf if unknown."""
    known = [each.entry_limit for each in found if math.isfinite(each.entry_limit)]
    return max(known, default=math.inf)


def _wrong_blocks(found: Compared) -> Iterator[Block]:
    return (block for block in blocks([found.named]) if bool(found.wrong[block.coordinates].any()))


def _worst_first(found: Compared, block: Block) -> Tensor:
    """Return the positions in the block of its wrong entries; the largest error beside what is allowed first."""
    part = block.coordinates
    ratio = (found.error[part] / found.allowed[part]).nan_to_num(math.inf)
    ratio = torch.where(found.wrong[part], ratio, -1.0)
    return ratio.argsort(descending=True, stable=True)[: int(found.wrong[part].sum())]


def _count(found: Compared, block: Block) -> str:
    wrong = found.wrong[block.coordinates]
    return f"{int(wrong.sum()):,} of {entries_text(wrong.numel())}"


def _differ(found: Compared, block: Block, finite: bool) -> str:
    one = int(found.wrong[block.coordinates].sum()) == 1
    if not finite:
        return f"{_differ_in(found, block)} where one of the two is not finite"
    if found.by_factor:
        factor, allowed = 1 + max(found.factors, key=abs), _up(found.factor_limit)
        if not 0 < factor < 2:  # no entry is wrong alone: the reference is rounding around zero
            return f"{'differs' if one else 'differ'} together by more than rounding explains"
        return f"{'differs' if one else 'differ'} by a common factor of {factor:.8g}, and 1 ± {allowed} is allowed"
    return "differs" if one else "differ"


def _differ_in(found: Compared, block: Block) -> str:
    """Return "differ", with the number of entries that are not finite if that is not all."""
    wrong, number = (int(each[block.coordinates].sum()) for each in (found.wrong, found.not_finite))
    if number < wrong:
        return f"differ, {number:,} of them"
    return "differs" if wrong == 1 else "differ"


def _worst(found: Compared, block: Block, position: int, other: Other) -> str:
    part = block.coordinates
    own, right = distinguishable(float(found.value[part][position]), float(found.exact[part][position]))
    place = f"{block.name}{index_text(block.index(position))}"
    return f"{place} is {own}, {other.says} {right} ({float(found.ulps[part][position]):.2g} ulps)"


def _elements(found: Compared, block: Block, positions: Tensor, *, of_output: bool) -> Iterator[Element]:
    part = block.coordinates
    point = flatten([found.named.tensor])[part]
    columns = (point, found.value[part], found.exact[part], found.error[part], found.allowed[part], found.ulps[part])
    chosen = zip(positions.tolist(), *(column[positions].tolist() for column in columns), strict=True)
    for position, value, own, right, error, allowed, ulps in chosen:
        index = block.index(position)
        yield Element(
            output_index=index if of_output else (),
            input_index=() if of_output else index,
            value=math.nan if of_output else value,
            analytic=own,
            numeric=right,
            error_bar=0.0,
            error=error,
            allowed=allowed,
            verdict=ElementVerdict.MISMATCH,
            ulps=ulps,
        )


def _up(bound: float) -> str:
    """Return a bound with two digits, rounded up; infinity and NaN as they are."""
    if not math.isfinite(bound):
        return f"{bound:g}"
    digits = math.floor(math.log10(bound)) - 1 if bound > 0 else 0
    return f"{math.ceil(bound / 10.0**digits - 1e-9) * 10.0**digits:.2g}"


def result_of(
    check: str, problem: Problem, found: Sequence[Finding], message: str, compared: Sequence[Compared]
) -> CheckResult:
    """Return the result of a check that compared these tensors."""
    limit = entry_limit(compared)
    return CheckResult(
        check=check,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=message,
        method=Method.DENSE if compared else None,
        entries=sum(each.wrong.numel() for each in compared),
        mismatched=sum(int(each.wrong.sum()) for each in compared),
        max_error=max((float(each.error.max()) for each in compared if each.error.numel()), default=0.0),
        detection_limit=limit if compared and math.isfinite(limit) else None,
        evaluations=evaluations(problem),
        findings=tuple(found),
    )
