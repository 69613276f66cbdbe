"""Sentences about entries: the only place where a check puts numbers into words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

from gradverify.core.decide.comparison import Comparison, Entries
from gradverify.core.decide.subgradients import WrongDirection
from gradverify.core.decide.verdict import ACCEPTED, WRONG, Code, Reason
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import UNDERFLOW
from gradverify.result import BLUNT, Element, Finding, Verdict

_ACCEPTED = {Code.KINK: "at a kink", Code.EDGE: "at the edge of the domain"}
_UNJUDGED = {
    Code.JUMP: "at a jump",
    Code.UNDEFINED: "where the forward is not finite",
    Code.NAN_PROPAGATED: "beside an infinite derivative",
    Code.UNDETERMINED: "undetermined",
}


def finding_of(group: Entries, series: int, *, missing: bool, narrow: str = "") -> Finding:
    """Return the finding for a group of entries with one verdict; `series` is 100 or 200.

    `narrow` names the dtypes of a forward that is sampled in low precision.
    """
    code, verdict = _code(group, missing=missing)
    elements = _elements(group)
    if group.code is Code.UNFINISHED:  # of the others, nothing is known
        elements = tuple(element for element in elements if element.error > element.allowed)
    return Finding(
        code=f"GV{series + code}",
        verdict=verdict,
        of=group.of.name,
        wrt=group.wrt.name,
        message=_message(group, elements[0], series, code, narrow),
        total=len(elements) if group.code is Code.UNFINISHED else group.total,
        elements=elements,
    )


def unnamed(of: Block, wrt: Block, series: int) -> Finding:
    """Return the finding on a block whose random sums differ although no wrong entry of it was found."""
    message = (
        f"random sums over d {of.name} / d {wrt.name} differ, but no single entry was found to be wrong: fix the other"
        " findings first, or search longer with --max-evaluations"
    )
    return Finding(code=f"GV{series + 4}", verdict=Verdict.INCONCLUSIVE, of=of.name, wrt=wrt.name, message=message)


def summary_of(comparison: Comparison, verdict: Verdict) -> str:
    """Return one sentence about the whole comparison."""
    count = comparison.counts
    if verdict is Verdict.FAIL:
        least, wrong = "at least " if comparison.at_least else "", comparison.wrong
        text = f"{least}{wrong:,} of {entries_text(comparison.entries)} {'differs' if wrong == 1 else 'differ'}"
        in_doubt = count[Code.UNEXAMINED]
        return f"{text}, {in_doubt:,} in doubt {_were(in_doubt)} not examined further" if in_doubt else text
    words = _UNJUDGED if verdict is Verdict.INCONCLUSIVE else _ACCEPTED
    parts = [f"{count[code]:,} {text}" for code, text in words.items() if count[code]]
    if verdict is Verdict.INCONCLUSIVE:
        return f"{', '.join(parts)}, of {entries_text(comparison.entries)}" if parts else ""
    agree = f"{entries_text(comparison.entries)} {'agrees' if comparison.entries == 1 else 'agree'}"
    if comparison.sums:
        agree = f"{agree} in {comparison.sums:,} random {'sum' if comparison.sums == 1 else 'sums'}"
    return f"{agree}, {', '.join(parts)}" if parts else agree


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def limit_of(comparison: Comparison) -> str:
    """Return, to end a sentence, the relative error of an entry below which it is not detected; "" if below `BLUNT`."""
    limit = comparison.extremes.detection_limit or 0.0
    if limit >= 1.0 and not comparison.sums:
        return "; some are so small that differences cannot tell them from zero"
    return f"; relative errors below {_bar(limit)} may not be detected" if limit > BLUNT else ""


def if_constant(name: str) -> str:
    """Return, to end a sentence, what to do if an input is not meant to have a gradient."""
    return f"; if {name} is a constant, set `requires_grad: false` on it (in Python, pass it without requires_grad)"


def along(group: Entries, ties: Sequence[WrongDirection], sampled: Sampler) -> str:
    """Return the direction along which the row of the worst entry is wrong, with both derivatives."""
    worst = int(group.output[0])
    tie = next(tie for tie in ties if tie.output == group.of.start + group.of.step * worst)
    place = f"{group.of.name}{index_text(group.of.index(worst))}"
    return (
        f"along {_direction(tie, sampled.inputs)}, {place} changes by {tie.rise:.4g}, backward says {tie.claimed:.4g}"
    )


def unfinished_search(columns: Sequence[int], inputs: Sequence[Block]) -> str:
    """Return the message if random sums disagree and time ran out during the search for the wrong entries."""
    text = "random sums disagree; the search was not finished"
    return f"{text}; found so far: by {', '.join(_named(inputs, column) for column in columns)}" if columns else text


def differs_so_far(group: Entries) -> bool:
    """Return True if some of these entries, of which time did not suffice to judge any, differ at the steps taken."""
    return bool((group.error > group.allowed).any())


def compared_so_far(comparison: Comparison, sampled: Sampler) -> str:
    """Return, of a comparison that time ended, how many columns (input coordinates) were judged in all entries."""
    unfinished = [group for group in comparison.groups if group.code is Code.UNFINISHED]
    columns = {group.wrt.start + group.wrt.step * place for group in unfinished for place in group.inputs.tolist()}
    count = len(sampled.point)
    return f"{count - len(columns):,} of {count:,} {'column' if count == 1 else 'columns'} compared"


def nothing_compared(inputs: Sequence[Block], outputs: Sequence[Block]) -> str:
    """Return why a Jacobian has no entries: no input has elements, or no output."""
    word, found = ("output", outputs) if any(math.prod(block.shape) for block in inputs) else ("input", inputs)
    shapes = ", ".join(f"{block.name} of shape {list(block.shape)}" for block in found)
    return f"nothing was compared: no {word} has elements ({shapes})"


def distinguishable(one: float, other: float) -> tuple[str, str]:
    """Return both numbers with as many digits as it takes to distinguish them, six or more."""
    for digits in range(6, 17):
        texts = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return f"{one:.17g}", f"{other:.17g}"


def entries_text(count: int) -> str:
    """Return "1 entry", "12 entries"."""
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def index_text(index: tuple[int, ...]) -> str:
    """Return the index as in Python, "[0, 1]"; "" for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


_STILL = 0.5  # relative to backward's value: an error bar around zero this wide is that of stairs
_NARROW = 1e-5  # relative to the entry: an error bar narrow enough to judge it
_TERMS = 4  # of a direction that are written out, at most


def _direction(tie: WrongDirection, inputs: Sequence[Block]) -> str:
    """Return the direction as a sum of inputs: x[0] + 0.5·x[1] - y."""
    text = ""
    for place, factor in zip(tie.inputs[:_TERMS], tie.direction, strict=False):
        size = "" if f"{abs(factor):.4g}" == "1" else f"{abs(factor):.4g}·"
        sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
        text += f"{sign}{size}{_named(inputs, place)}"
    return text if len(tie.inputs) <= _TERMS else f"{text} + … ({len(tie.inputs):,} inputs)"


def _named(blocks: Sequence[Block], coordinate: int) -> str:
    """Return the name of a coordinate as a user writes it: x[0, 1]."""
    for block in blocks:
        offset = coordinate - block.start
        if block.start <= coordinate < block.stop and offset % block.step == 0:
            return f"{block.name}{index_text(block.index(offset // block.step))}"
    raise AssertionError(f"no block holds coordinate {coordinate}")


def _code(group: Entries, *, missing: bool) -> tuple[int, Verdict]:
    if group.code in ACCEPTED:
        return 0, Verdict.PASS
    if group.code not in WRONG:
        return 4, Verdict.INCONCLUSIVE
    if missing:
        return 2, Verdict.FAIL
    if not bool(group.analytic.isfinite().any()):
        return 3, Verdict.FAIL
    return 1, Verdict.FAIL


def _message(group: Entries, worst: Element, series: int, code: int, narrow: str) -> str:
    block = f"d {group.of.name} / d {group.wrt.name}"
    place = f"{group.of.name}{index_text(worst.output_index)} by {group.wrt.name}{index_text(worst.input_index)}"
    wrong = group.code is Code.MISMATCH
    numbers = (
        distinguishable(worst.analytic, worst.numeric) if wrong else (f"{worst.analytic:.6g}", f"{worst.numeric:.6g}")
    )
    found = f"backward says {numbers[0]}, differences say {numbers[1]} ± {_bar(worst.error_bar)}"
    count = f"{entries_text(group.total)} of {block}"
    where = f" in {narrow}, where a `reference` shows more" if narrow else ""
    if code == 2 and series == 200:
        by = group.wrt.name
        return f"the derivative of backward by {by} is silently zero, but {group.of.name} depends on it in {count}"
    if code == 2:
        return f"backward returns no gradient for {group.wrt.name}, but {group.of.name} depends on it in {count}"
    if code == 3:
        return f"{count} not finite where the derivative is{_at_zeros(group)}; {place}: {found}"
    reasons = {
        Code.MISMATCH: f"{count} {'differs' if group.total == 1 else 'differ'}; worst {place}: {found}",
        Code.NOT_A_SUBGRADIENT: (
            f"{count} {_each(group.total)}, but the row as a whole is the gradient of no piece nearby"
        ),
        Code.KINK: f"{count} at a kink: backward's value lies between the one-sided derivatives ({place})",
        Code.JUMP: f"{count} cannot be judged: the function jumps at the point ({place})",
        Code.EDGE: f"{count} at the edge of the domain: judged by the one-sided derivative ({place})",
        Code.UNDEFINED: f"{count} cannot be judged: the forward is not finite at the point ({place})",
        Code.NAN_PROPAGATED: (
            f"{count} cannot be judged: backward says nan, zero times the infinite derivative of another entry by the"
            f" same input ({place})"
        ),
        Code.UNFINISHED: f"{place} differs so far, but time ran out before this was confirmed: {found}",
        Code.UNDETERMINED: f"{count} undetermined{where}: {_why_open(worst)} ({place}: {found})",
    }
    return reasons[group.code]


def _at_zeros(group: Entries) -> str:
    """Return a remark if all these entries are by inputs that are exactly zero."""
    if group.total > len(group.value) or bool((group.value != 0).any()):
        return ""
    return ", all by inputs that are exactly 0 (0/0 or 0·inf in backward)"


def _why_open(worst: Element) -> str:
    """Return why an entry is undetermined: its error bar, or the reason not to rely on it."""
    size = max(abs(worst.analytic), abs(worst.numeric))
    if worst.error_bar <= _NARROW * size:
        return "a kink close by, or rounding on the way, may explain what backward and differences say"
    if not math.isfinite(worst.numeric):
        return (
            "differences find no number, as at an infinite derivative, at the end of the domain, or if rounding on the"
            " way hides the slope"
        )
    if worst.numeric == 0 and worst.error_bar >= _STILL * size > 0:
        return (
            "the output stands still at small steps and may move in stairs, by quantisation or by rounding on the way"
        )
    return "the error bar is too wide to judge"


def _bar(bar: float) -> str:
    """Return an error bar rounded up: a bound must not look smaller than it is."""
    return f"{float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(bar))):.1g}"


def _each(count: int) -> str:
    return "lies between its one-sided derivatives" if count == 1 else "lie between their one-sided derivatives"


def _elements(group: Entries) -> tuple[Element, ...]:
    return tuple(
        Element(
            output_index=group.of.index(output),
            input_index=group.wrt.index(position),
            value=value,
            analytic=analytic,
            numeric=numeric,
            error_bar=bar if bar > UNDERFLOW else 0.0,
            error=error,
            allowed=allowed,
            verdict=group.code.verdict,
            reason=tuple(Reason)[reason].sentence,
        )
        for output, position, value, analytic, numeric, bar, error, allowed, reason in zip(
            group.output.tolist(),
            group.input.tolist(),
            group.value.tolist(),
            group.analytic.tolist(),
            group.numeric.tolist(),
            group.bar.tolist(),
            group.error.tolist(),
            group.allowed.tolist(),
            group.reason.tolist(),
            strict=True,
        )
    )
