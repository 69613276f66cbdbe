"""An accusation on trial, and questions to backward that many rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import answers, asked_with
from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.column_groups import GroupKind
from gradverify.core.forward.sampler import places as standing
from gradverify.core.model.magnitudes import any_set

_PAIRED, _FILLED = 4096, 16_000_000  # rows of which all pairs are compared, and numbers in these
_ROUNDS = 8  # in which rows are added to a question, each time those that come before all of their neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Some moves with entries that are accused."""

    context: JudgingContext
    backward: Backward
    chosen: Tensor  # (C,) the moves that the verdicts are on
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What backward is asked, to hear the rows of some entries."""

    outputs: Tensor  # (k,) whose rows they are
    number: Tensor  # (k,) of each output's question; -1 where there is none
    cotangents: Tensor  # (K, m) of the questions: the sum of the unit vectors of their outputs

    @property
    def unasked(self) -> Tensor:
        """The outputs whose rows would be one question too many."""
        return self.outputs[self.number < 0]


def questions(context: JudgingContext, backward: Backward, chosen: Tensor, wanted: Tensor, most: int) -> Questions:
    """Return not more than so many questions that tell the entries `wanted` (C, m) of these moves apart.

    Where nothing is known of which outputs share an input, those do whose rows claim something of the same one.
    """
    outputs = wanted.any(dim=0).nonzero().squeeze(1)
    column_of = context.column_groups.column_of[:, outputs]
    reaches = column_of >= 0
    if context.column_groups.kind is GroupKind.SINGLE:
        reaches = context.claimed[:, outputs] != 0
        reaches[chosen] |= wanted[:, outputs]
    nobody = len(context.column_groups.colour)
    number = _numbered(torch.where(reaches, column_of, nobody).T, nobody, max(1, most))
    asked = number >= 0
    cotangents = torch.zeros(int(number.max()) + 1, len(backward.heard[0]), dtype=torch.float64)
    cotangents[number[asked].cpu(), standing(context.sampled, outputs[asked]).cpu()] = 1.0
    return Questions(outputs=outputs, number=number, cotangents=cotangents)


def answered(backward: Backward, asked: Questions) -> Tensor:
    """Return backward's answers to the questions, (K, n)."""
    unit = asked_with(backward)
    found = answers(backward, unit * asked.cotangents)
    return found if unit == 1.0 else found / unit


def told(found: Tensor, asked: Questions, column_of: Tensor) -> Tensor:
    """Return what the answers (K, n) say of the entries of some moves, `owner` (C, m); 0 where nothing; (C, m)."""
    mine = column_of[:, asked.outputs]
    known = (asked.number >= 0) & (mine >= 0)
    every = torch.zeros(column_of.shape, dtype=found.dtype, device=found.device)
    every[:, asked.outputs] = torch.where(known, found[asked.number.clamp(min=0), mine.clamp(min=0)], 0.0)
    return every


def _numbered(reach: Tensor, nobody: int, most: int) -> Tensor:
    """Return the question of each row (k,), -1 beyond so many; `reach` (k, M) is by which inputs, or `nobody`."""
    number = torch.full_like(reach[:, 0], -1)
    generator = torch.Generator().manual_seed(0)
    if int(torch.bincount(reach.reshape(-1), minlength=nobody + 1)[:nobody].max()) == len(reach):  # common to all
        some = torch.randperm(len(reach), generator=generator)[:most].to(reach.device)
        number[some] = torch.arange(len(some), device=reach.device)
        return number
    if len(reach) <= _PAIRED and len(reach) * nobody <= _FILLED:
        return _paired(reach, nobody, most, generator)
    for question in range(most):
        taken = torch.zeros(nobody + 1, dtype=torch.bool, device=reach.device)
        for _ in range(_ROUNDS):
            free = ((number < 0) & ~taken[reach].any(dim=1)).nonzero().squeeze(1)
            if not len(free):
                break
            chosen = free[_before_neighbours(reach[free], nobody, generator)]
            number[chosen] = question
            taken[reach[chosen]] = True
            taken[nobody] = False
    return number


def _paired(reach: Tensor, nobody: int, most: int, generator: torch.Generator) -> Tensor:
    """Return the same where all pairs of rows can be compared: each question takes whatever it still can."""
    order = torch.randperm(len(reach), generator=generator).to(reach.device)
    filled = torch.zeros(len(reach), nobody + 1, dtype=torch.float32, device=reach.device)
    filled = filled.scatter_(1, reach[order], 1.0)[:, :nobody]
    apart = filled @ filled.T == 0
    number = torch.full_like(order, -1)
    for question in range(most):
        free = number < 0
        while any_set(free):
            first = int(free.view(torch.uint8).argmax())
            number[first] = question
            free &= apart[first]
            free[first] = False
    return torch.empty_like(number).index_copy_(0, order, number)


def _before_neighbours(reach: Tensor, nobody: int, generator: torch.Generator) -> Tensor:
    """Tell which rows come before all that share an input with them, in some random order; (k,)."""
    rank = torch.randperm(len(reach), generator=generator).to(reach.device).unsqueeze(1).expand_as(reach)
    first = torch.full((nobody + 1,), len(reach), device=reach.device)
    first.scatter_reduce_(0, reach.reshape(-1), rank.reshape(-1), "amin")
    return ((first[reach] == rank) | (reach == nobody)).all(dim=1)


Excuse = Callable[[Trial, Judged], Judged]  # the verdicts (C, m) before and after; only what is accused changes
