"""From a sum that does not come out right to the entries that are wrong: by halving, columns first and then rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import rows
from gradverify.core.backward.vjps import row
from gradverify.core.estimate.directional import slope
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.magnitudes import all_set
from gradverify.core.strategy.random_sums import Gap, Probe, gap, gap_at, ratio, wide

_LARGEST = 3  # rows of a wrong column that are looked at before any search: those of its largest entries
_FIRST = 2.0**-8  # first step of a single column, relative to the length scale
_CLOSER = 2.0**-22  # and where there is a kink on the way
_SHARP = 1e-7  # bars below this part of the largest slope say that there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An entry that may be wrong."""

    row: int
    column: int


class Rows:
    """The rows of backward's Jacobian that have been asked for, each asked once."""

    def __init__(self, asked: Probe) -> None:
        self._asked = asked
        self._known: dict[int, Tensor] = {}

    def __getitem__(self, place: int) -> Tensor:
        if place not in self._known:
            (self._known[place],) = rows(self._asked.backward, [place])
        return self._known[place]

    @property
    def known(self) -> tuple[int, ...]:
        """The places asked for so far."""
        return tuple(self._known)


def wrong_columns(asked: Probe, direction: Tensor, found: Gap, most: int) -> Iterator[int]:
    """Yield coordinates whose column is wrong, following the larger error first, until so many calls are used up."""
    meter, begun = asked.sampled.problem.meter, asked.sampled.problem.meter.forward
    waiting = [(direction.nonzero().squeeze(1), found)]
    while waiting and meter.forward - begun < most:
        support, whole = waiting.pop()
        if len(support) == 1:
            yield int(support)
            continue
        left, right = support[: len(support) // 2], support[len(support) // 2 :]
        one = gap_at(asked, _only(direction, left), whole.first)
        halves = [(left, one), (right, _rest(whole, one))]
        if not any(wide(part) for _, part in halves):  # a kink on the way of one of them alone, that closer steps avoid
            halves = [(support, gap(asked, _only(direction, support))) for support, _ in halves]
        waiting += [half for half in sorted(halves, key=lambda half: ratio(half[1])) if wide(half[1])]


def wrong_rows(asked: Probe, answers: Rows, column: int) -> list[int]:
    """Return outputs whose entry in a wrong column is wrong: a few of them, empty where none can be told."""
    direction = torch.zeros_like(asked.sampled.point)
    direction[column] = asked.lengths.step[column]
    found = _slopes(asked, direction)
    size = found.value.abs().nan_to_num(0.0).masked_fill(asked.left_out, 0.0)
    likely = size.topk(min(_LARGEST, len(size))).indices.tolist()
    wrong = [place for place in {*likely, *answers.known} if _off(asked, answers, found, place, column)]
    if wrong:
        return sorted(wrong)
    halved = _halved(asked, found, column)
    return [halved] if halved is not None and _off(asked, answers, found, halved, column) else []


def _slopes(asked: Probe, direction: Tensor) -> Estimate:
    """Return the slopes of all outputs along one column, each from close by where there is a kink on the way; (m,)."""
    far = slope(asked.sampled, asked.noise, direction, _FIRST)
    if all_set(far.bar <= _SHARP * far.value.abs().nan_to_num(0.0, 0.0, 0.0).amax()):
        return far
    near = slope(asked.sampled, asked.noise, direction, _CLOSER)
    alike = (far.value - near.value).abs() <= BAR_FACTOR * (far.bar + near.bar)
    alike &= far.bar <= near.bar
    return Estimate(value=torch.where(alike, far.value, near.value), bar=torch.where(alike, far.bar, near.bar))


def _off(asked: Probe, answers: Rows, found: Estimate, place: int, column: int) -> bool:
    claimed = answers[place][column] * asked.lengths.step[column]
    numeric, bar = found.value[place], found.bar[place]
    allowed = BAR_FACTOR * bar + asked.rtol * torch.fmax(claimed.abs(), numeric.abs())
    return bool(~((claimed - numeric).abs() <= allowed) & torch.isfinite(bar))


def _halved(asked: Probe, found: Estimate, column: int) -> int | None:
    """Follow the largest error down to a single output, one vjp a level."""
    value = found.value.nan_to_num(0.0) / asked.lengths.step[column]
    errors = asked.cotangents @ value - asked.answers[:, column]
    cotangent = asked.cotangents[int(errors.abs().argmax())]
    error = float(errors.abs().max() * torch.sign(errors[int(errors.abs().argmax())]))
    support = cotangent.nonzero().squeeze(1)
    while len(support) > 1:
        left, right = support[: len(support) // 2], support[len(support) // 2 :]
        part = _only(cotangent, left)
        one = float(part @ value - row(asked.backward, part)[column])
        support, error = (left, one) if abs(one) >= abs(error - one) else (right, error - one)
    return int(support) if len(support) else None


def _only(vector: Tensor, support: Tensor) -> Tensor:
    part = torch.zeros_like(vector)
    part[support] = vector[support]
    return part


def _rest(whole: Gap, part: Gap) -> Gap:
    """Return the gap along what is left of a direction when a part of it is taken away."""
    return Gap(
        error=whole.error - part.error,
        bar=whole.bar + part.bar,
        allowed=whole.allowed + part.allowed,
        rounded=whole.rounded + part.rounded,
        size=whole.size + part.size,
        rtol=whole.rtol,
        first=whole.first,
    )
