"""Verdicts on entries, and the reasons for them. `decide` is the only function that changes a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Self

import torch
from torch import Tensor

from gradverify.core.model.magnitudes import any_set
from gradverify.result import ElementVerdict


class Code(IntEnum):
    """Element verdicts as numbers that a tensor can hold, counted from 0, each with the verdict that a report shows."""

    verdict: ElementVerdict

    def __new__(cls, verdict: ElementVerdict) -> Self:
        """Return the next number."""
        member = int.__new__(cls, len(cls.__members__))
        member._value_, member.verdict = int(member), verdict
        return member

    MATCH = ElementVerdict.MATCH
    MISMATCH = ElementVerdict.MISMATCH
    KINK = ElementVerdict.KINK
    JUMP = ElementVerdict.JUMP
    EDGE = ElementVerdict.EDGE
    UNDETERMINED = ElementVerdict.UNDETERMINED
    UNDEFINED = ElementVerdict.UNDETERMINED  # the forward is not finite at the point
    NOT_A_SUBGRADIENT = (
        ElementVerdict.MISMATCH
    )  # between the slopes of a kink, but the row as a whole is no subgradient
    NAN_PROPAGATED = ElementVerdict.UNDETERMINED  # nan, as 0 * inf: the input has an infinite derivative elsewhere
    UNFINISHED = ElementVerdict.UNDETERMINED  # time ran out before it was judged
    UNEXAMINED = ElementVerdict.UNDETERMINED  # in doubt, beside entries that differ


ACCEPTED = frozenset({Code.MATCH, Code.KINK, Code.EDGE})
WRONG = frozenset({Code.MISMATCH, Code.NOT_A_SUBGRADIENT})


class Reason(IntEnum):
    """Why an entry has its verdict, counted from 0: each with the verdict that goes with it, and a sentence."""

    code: Code
    sentence: str

    def __new__(cls, code: Code, sentence: str) -> Self:
        """Return the next number."""
        member = int.__new__(cls, len(cls.__members__))
        member._value_, member.code, member.sentence = int(member), code, sentence
        return member

    AGREES = Code.MATCH, "agrees within the tolerance and the error bar"
    CONSTANT = Code.MATCH, "zero, and the output does not change at any step"
    CANCELLATION = Code.MATCH, "agrees but for what cancellation in the forward may leave"
    MASKED = Code.MATCH, "zero, and the output is infinite whatever the inputs are"
    FLOAT64_BACKWARD = Code.MATCH, "the same backward is right in float64"
    BACKWARD_RESOLUTION = Code.MATCH, "agrees within the rounding of backward"
    NO_ENTRY = Code.MATCH, "zero by the sparsity of the Jacobian"
    DIFFERS = Code.MISMATCH, "differs by more than is allowed"
    DIFFERS_IN_SUM = Code.MISMATCH, "differs by more than is allowed; confirmed as part of a sum over several inputs"
    OUTSIDE_SLOPES = Code.MISMATCH, "at a kink, and outside the two one-sided derivatives"
    NOT_A_SUBGRADIENT = Code.NOT_A_SUBGRADIENT, "at a kink, and the row as a whole is no subgradient"
    BETWEEN_SLOPES = Code.KINK, "at a kink, between the two one-sided derivatives"
    OBLIQUE_KINK = Code.KINK, "between the derivatives close by, at a kink that no single input shows"
    OTHER_BRANCH = Code.KINK, "between the derivatives at points within backward's own rounding of the inputs"
    KINK_OF_FORWARD = Code.KINK, "the first derivative jumps, as the forward has a kink here"
    JUMP = Code.JUMP, "the function jumps at the point"
    EDGE = Code.EDGE, "agrees with the derivative to the one side that the domain has"
    NOT_FINITE = Code.UNDEFINED, "the forward is not finite at the point"
    NAN_PROPAGATED = Code.NAN_PROPAGATED, "nan, as 0 times the infinite derivative of another entry"
    WIDE_BAR = Code.UNDETERMINED, "the error bar is too wide to judge"
    STAIRS = Code.UNDETERMINED, "zero, and the output is constant close by and rises in stairs farther off"
    CANCELLATION_HIDES = Code.UNDETERMINED, "cancellation in the forward may explain the error"
    NOISE_OR_KINK = Code.UNDETERMINED, "agrees only if what the steps show is noise, not a kink close by"
    TOO_STEEP = Code.UNDETERMINED, "a slope as steep as claimed would show at no step above the noise"
    NOT_EXAMINED = Code.UNDETERMINED, "not examined: other errors of this kind turned out to be rounding"
    BACKWARD_NOISE = Code.UNDETERMINED, "rounding in backward moves the entry by as much as the error"
    UNLIKE_BOTH_SIDES = Code.UNDETERMINED, "the first derivative jumps, and has another slope on both sides"
    POSSIBLE_OBLIQUE_KINK = Code.UNDETERMINED, "a kink that no single input shows may explain the error"
    STAIRS_INSIDE = Code.UNDETERMINED, "the output lies on a stair, and larger steps agree"
    OTHERS_DIFFER = Code.UNEXAMINED, "in doubt, and not examined further, since other entries differ"
    OUT_OF_TIME = Code.UNFINISHED, "time ran out before it was judged to the end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on every entry of some column groups, each (C, m)."""

    numeric: Tensor  # at a kink, the subgradient nearest to the claim
    bar: Tensor
    error: Tensor
    allowed: Tensor
    code: Tensor  # int8, see Code
    reason: Tensor  # int8, see Reason
    kinked: Tensor  # bool: the differences of this column show a kink or a jump
    bent: Tensor  # bool: the kink is at the point itself


_FIELDS = tuple(field.name for field in fields(Judged))


def decide(judged: Judged, rules: Sequence[tuple[Tensor, Reason]], **values: Tensor) -> Judged:
    """Return the verdicts after some rules: a mask (C, m) of entries, and the reason that decides them.

    A later rule overrides an earlier one. `values` are other fields of `Judged` that change with the verdict.
    """
    code, reason = judged.code.clone(), judged.reason.clone()
    for where, why in rules:
        code.masked_fill_(where, why.code)
        reason.masked_fill_(where, why)
    return replace(judged, code=code, reason=reason, **values)


def all_match(numeric: Tensor, bar: Tensor, error: Tensor, allowed: Tensor) -> Judged:
    """Return the verdicts on entries that agree, each (C, m)."""
    none = torch.zeros_like(error, dtype=torch.bool)
    match = none.view(torch.int8)  # Code.MATCH, and Reason.AGREES
    return Judged(
        numeric=numeric, bar=bar, error=error, allowed=allowed, code=match, reason=match, kinked=none, bent=none
    )


Place = Tensor | tuple[Tensor | slice, Tensor]  # column groups, or these and outputs, as an index
Part = tuple[Tensor, Judged]  # column groups (C,), and the verdicts on their entries (C, m)


def agrees(judged: Judged) -> bool:
    """Return True if every entry matches."""
    return not any_set(judged.code)  # Code.MATCH is zero


def replaced(judged: Judged, where: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those of `found` for the entries in the mask `where`; all (C, m)."""
    return Judged(**{name: torch.where(where, getattr(found, name), getattr(judged, name)) for name in _FIELDS})


def with_part(judged: Judged, place: Place, found: Judged) -> Judged:
    """Return the verdicts with `found` for some column groups, or some outputs."""
    copy = copy_of(judged)
    put(copy, torch.ones_like(judged.kinked), place, found)
    return copy


def copy_of(judged: Judged) -> Judged:
    """Return a copy that may be written to."""
    return Judged(**{name: getattr(judged, name).clone() for name in _FIELDS})


def stacked(rows: Sequence[Judged]) -> Judged:
    """Return the verdicts on several sets of column groups as one, (C, m)."""
    if len(rows) == 1:
        return rows[0]
    return Judged(**{name: torch.cat([getattr(each, name) for each in rows]) for name in _FIELDS})


def of_rows(judged: Judged, rows: Tensor | slice) -> Judged:
    """Return the verdicts on some of the column groups."""
    return Judged(**{name: getattr(judged, name)[rows] for name in _FIELDS})


def of_outputs(judged: Judged, outputs: Tensor | slice) -> Judged:
    """Return the verdicts on some of the outputs."""
    return Judged(**{name: getattr(judged, name)[:, outputs] for name in _FIELDS})


def put(judged: Judged, where: Tensor, place: Place, found: Judged) -> None:
    """Write `found` to a place in `judged`, for the entries in the mask `where` (C, m)."""
    chosen = where[place]
    for name in _FIELDS:
        value = getattr(judged, name)
        value[place] = torch.where(chosen, getattr(found, name), value[place])
