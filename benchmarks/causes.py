"""Measure how often the right cause is named: `python -m benchmarks.causes [--seeds N] [-k TEXT] [-v]`."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.causes_faults import UNKNOWN, Planted, faults
from benchmarks.causes_subjects import SUBJECTS
from benchmarks.command import parsed_options, parser_of, save
from benchmarks.plain_table import table
from benchmarks.planting import claimed_jacobian, planted
from benchmarks.record import Row, Standing, judged_row
from benchmarks.subject import Subject, settings, subject_of
from gradverify.catalogue import causes
from gradverify.checks.registry import run_check
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult, Finding, Verdict

UNEXPLAINED = "unexplained"
NOT_FOUND = "not found"  # the function does not fail
_SAME = 1e-9  # relative to the largest entry: faults that differ by less are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The cause named for one wrong block."""

    subject: str
    planted: Planted
    block: str  # d output / d input
    named: str  # the cause, UNEXPLAINED or NOT_FOUND
    as_good: frozenset[str]  # kinds of faults, this one included, that produce the same block
    result: CheckResult  # of the whole function
    message: str


def main() -> None:
    """Plant the faults that the command line selects and print the table."""
    options = _options()
    begin = time.perf_counter()
    answers = [answer for seed in range(options.seeds) for answer in _answers(seed, options.k)]
    print(confusion(answers))
    print(*summary(answers), sep="\n")
    for answer in answers:
        if options.verbose or not is_right(answer):
            print(answer_line(answer))
    print(f"{len(answers)} wrong blocks in {len(SUBJECTS)} functions, {time.perf_counter() - begin:.0f} s")
    save("causes", options, map(row_of, answers))


def confusion(answers: Sequence[Diagnosis]) -> str:
    """Return the table of planted kinds by named causes."""
    count = Counter((answer.planted.kind, _credited(answer)) for answer in answers)
    kinds = [*causes(), UNKNOWN]
    names = [*causes(), UNEXPLAINED, NOT_FOUND]
    used = [name for name in names if any(count[kind, name] for kind in kinds)]
    rows = [
        (kind, sum(count[kind, name] for name in names), *(count[kind, name] or "" for name in used)) for kind in kinds
    ]
    return table(("planted", "blocks", *used), rows)


def summary(answers: Sequence[Diagnosis]) -> Iterator[str]:
    """Yield lines with the shares of known kinds named rightly and of unknown kinds named at all."""
    known = [answer for answer in answers if answer.planted.kind != UNKNOWN]
    unknown = [answer for answer in answers if answer.planted.kind == UNKNOWN]
    right = sum(is_right(answer) for answer in known)
    silent = sum(answer.named == UNEXPLAINED for answer in known)
    yield f"known kinds: {right} of {len(known)} named right ({100 * right / max(1, len(known)):.1f} %),"
    yield f"             {silent} left unexplained, {len(known) - right - silent} called something else"
    missed = sum(answer.named == NOT_FOUND for answer in answers)
    if missed:
        yield f"             {missed} faults were not found at all"
    yield f"no known kind: {sum(not is_right(answer) for answer in unknown)} of {len(unknown)} named"


def _answers(seed: int, text: str) -> Iterator[Diagnosis]:
    for specimen in SUBJECTS:
        subject = subject_of(specimen, seed)
        assert subject is not None
        yield from answers_to(subject, seed, text)


def answers_to(subject: Subject, seed: int, text: str) -> Iterator[Diagnosis]:
    """Yield the cause named for every wrong block of the faults whose function or kind contains the text."""
    found = list(faults(subject, seed))
    for fault in found:
        if text in f"{subject.name} {fault.kind}":
            yield from _answers_to_fault(subject, fault, found, seed)


def _answers_to_fault(subject: Subject, fault: Planted, others: Sequence[Planted], seed: int) -> Iterator[Diagnosis]:
    result = run_check("gradcheck", planted(subject.problem, subject.kept, fault.claim), settings(seed), diagnose)
    if result.verdict is not Verdict.FAIL and not _changes_nothing(subject, fault):
        yield Diagnosis(
            subject=subject.name,
            planted=fault,
            block="all blocks",
            named=NOT_FOUND,
            as_good=frozenset(),
            result=result,
            message=result.message,
        )
    for finding in result.findings:
        if finding.verdict is Verdict.FAIL:
            block = _block(subject, fault, finding)
            as_good = {other.kind for other in others if _same(block, _block(subject, other, finding))}
            if fault.kind == UNKNOWN and _is_plain(_right(subject, finding), block):
                continue  # by accident the distortion is a constant factor, or changes at most three entries
            yield Diagnosis(
                subject=subject.name,
                planted=fault,
                block=f"d {finding.of} / d {finding.wrt}",
                named=finding.cause or UNEXPLAINED,
                as_good=frozenset(as_good),
                result=result,
                message=finding.message.partition("\n")[2],
            )


def _changes_nothing(subject: Subject, fault: Planted) -> bool:
    """Return True for a fault without effect, such as the transpose of a symmetric Jacobian."""
    return _same(_claimed(subject, fault), _with_zeros(subject))


def _block(subject: Subject, fault: Planted, finding: Finding) -> Tensor:
    return _part(subject, _claimed(subject, fault), finding)


def _right(subject: Subject, finding: Finding) -> Tensor:
    return _part(subject, _with_zeros(subject), finding)


def _claimed(subject: Subject, fault: Planted) -> Tensor:
    """Return the wrong Jacobian with the gradient for a zero cotangent as a last row, (m + 1, n)."""
    zero = fault.claim(torch.zeros(len(subject.jacobian), dtype=torch.float64))
    return torch.cat([claimed_jacobian(fault.claim, len(subject.jacobian)), zero.unsqueeze(0)])


def _with_zeros(subject: Subject) -> Tensor:
    """Return the right Jacobian with a last row of zeros, (m + 1, n)."""
    return torch.cat([subject.jacobian, 0 * subject.jacobian[:1]])


def _part(subject: Subject, entries: Tensor, finding: Finding) -> Tensor:
    """Return the finding's block of `entries`, with the gradient for a zero cotangent as a last row."""
    of = next((block for block in subject.outputs if block.name == finding.of), subject.outputs[0])
    wrt = next(block for block in subject.inputs if block.name == finding.wrt)
    return torch.cat([entries[:-1][of.coordinates, wrt.coordinates], entries[-1:, wrt.coordinates]])


def _same(first: Tensor, second: Tensor) -> bool:
    return bool(((first - second).abs() <= _SAME * first.abs().max()).all())


def _is_plain(right: Tensor, wrong: Tensor) -> bool:
    """True if at most three entries differ, or all differ by one constant factor."""
    ratio = (wrong / right)[right != 0]
    if int((wrong != right).sum()) <= 3:
        return True
    return len(ratio) > 1 and bool(((ratio - ratio[0]).abs() <= _SAME * ratio[0].abs()).all())


def _credited(answer: Diagnosis) -> str:
    """Return the planted kind if the cause named fits the block as well, else the cause named."""
    return answer.planted.kind if answer.named in answer.as_good else answer.named


def answer_line(answer: Diagnosis) -> str:
    """Return a line with the fault and the cause named for it."""
    fault = f"{answer.planted.kind} {answer.planted.variant}".strip()
    return f"{answer.subject}: {fault}: {answer.named}: {answer.message}"


def row_of(answer: Diagnosis) -> Row:
    """Return the row of one wrong block."""
    standing = Standing.RIGHT if is_right(answer) else Standing.WRONG_CAUSE
    if answer.named == NOT_FOUND:
        standing = Standing.INCONCLUSIVE if answer.result.verdict is Verdict.INCONCLUSIVE else Standing.MISSED
    key = f"{answer.subject}: {answer.planted.kind} {answer.planted.variant}: {answer.block}"
    row = judged_row(key, answer.result, standing, answer.message)
    return replace(row, cause=None if answer.named in (UNEXPLAINED, NOT_FOUND) else answer.named)


def is_right(answer: Diagnosis) -> bool:
    """True if the cause named is the planted one or produces the same block; an unknown kind must be unexplained."""
    if answer.planted.kind == UNKNOWN:
        return answer.named == UNEXPLAINED
    return answer.named in answer.as_good


def _options() -> argparse.Namespace:
    parser = parser_of("Measure how often a cause is named rightly.")
    parser.add_argument("--seeds", type=int, default=1, help="draws of inputs and faults")
    parser.add_argument("-k", default="", metavar="TEXT", help="functions and kinds that contain TEXT")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every answer, not only the wrong ones")
    return parsed_options(parser)


if __name__ == "__main__":
    main()
