"""Dynamic programming in Python loops: alignments, labellings, a chain, a scan; gradients by the backward recursion."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward
from tests.zoo.specimen import normal, uniform

_GAMMA = 0.5  # smoothing of the minimum in SoftDTW
_TARGET = (0, 1, 0, 2, 0, 1, 0)  # labels of CTC with blanks (0) between them
_INFINITE = 1e30


class SoftDTW(Function):
    """Soft minimum over all alignments of two sequences, given their distances."""

    @staticmethod
    def forward(ctx: Any, distances: Tensor) -> Tensor:
        sums = _aligned(distances)
        ctx.save_for_backward(distances, sums)
        return sums[-1, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * _alignments(*ctx.saved_tensors, _GAMMA, 99)


@once_differentiable
def _without_gamma(ctx: Any, g: Tensor) -> Tensor:
    return g * _alignments(*ctx.saved_tensors, 1.0, 99)


@once_differentiable
def _in_a_band(ctx: Any, g: Tensor) -> Tensor:
    return g * _alignments(*ctx.saved_tensors, _GAMMA, 3)


def _aligned(distances: Tensor) -> Tensor:
    rows, columns = distances.shape
    sums = torch.full((rows + 1, columns + 1), _INFINITE, dtype=distances.dtype)
    sums[0, 0] = 0.0
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            before = torch.stack([sums[i - 1, j - 1], sums[i - 1, j], sums[i, j - 1]])
            sums[i, j] = distances[i - 1, j - 1] - _GAMMA * torch.logsumexp(-before / _GAMMA, 0)
    return sums


def _alignments(distances: Tensor, sums: Tensor, gamma: float, band: int) -> Tensor:
    rows, columns = distances.shape
    share = torch.zeros(rows + 2, columns + 2, dtype=distances.dtype)
    share[rows, columns] = 1.0
    for i in range(rows, 0, -1):
        for j in range(columns, 0, -1):
            if (i, j) == (rows, columns) or abs(i - j) > band:
                continue
            for k, m in ((i + 1, j), (i, j + 1), (i + 1, j + 1)):
                if k <= rows and m <= columns:
                    weight = ((sums[k, m] - sums[i, j] - distances[k - 1, m - 1]) / gamma).exp()
                    share[i, j] += weight * share[k, m]
    return share[1:-1, 1:-1].clone()


def _soft_dtw(distances: Tensor) -> Tensor:
    rows, columns = distances.shape
    sums = {(0, 0): distances.new_zeros(())}
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            known = [sums[key] for key in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if key in sums]
            sums[i, j] = distances[i - 1, j - 1] - _GAMMA * torch.logsumexp(-torch.stack(known) / _GAMMA, 0)
    return sums[rows, columns]


class CTC(Function):
    """Negative log likelihood of a labelling, summed over its alignments, from log probabilities (time, labels)."""

    @staticmethod
    def forward(ctx: Any, logs: Tensor) -> Tensor:
        forth = _likelihoods(logs)
        total = torch.logsumexp(forth[-1, -2:], 0)
        ctx.save_for_backward(logs, forth, total)
        return -total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        posterior = _posterior(ctx)
        return -g * torch.zeros_like(ctx.saved_tensors[0]).index_add(1, torch.tensor(_TARGET), posterior)


@once_differentiable
def _assigned_instead_of_added(ctx: Any, g: Tensor) -> Tensor:
    gradient = torch.zeros_like(ctx.saved_tensors[0])
    gradient[:, list(_TARGET)] = _posterior(ctx)  # the last of several equal labels
    return -g * gradient


@once_differentiable
def _pruned(ctx: Any, g: Tensor) -> Tensor:
    posterior = _posterior(ctx)
    posterior[posterior < 1e-3] = 0.0
    return -g * torch.zeros_like(ctx.saved_tensors[0]).index_add(1, torch.tensor(_TARGET), posterior)


def _likelihoods(logs: Tensor) -> Tensor:
    """Return the log likelihood of every prefix of the target at every time, (time, target)."""
    states = [[logs[0, 0], logs[0, _TARGET[1]], *[logs.new_tensor(-_INFINITE)] * (len(_TARGET) - 2)]]
    for row in logs[1:]:
        before, now = states[-1], []
        for s, label in enumerate(_TARGET):
            ways = before[max(0, s - 1) : s + 1]
            if s > 1 and label not in (0, _TARGET[s - 2]):
                ways = [before[s - 2], *ways]
            now.append(row[label] + torch.logsumexp(torch.stack(ways), 0))
        states.append(now)
    return torch.stack([torch.stack(state) for state in states])


def _posterior(ctx: Any) -> Tensor:
    logs, forth, total = ctx.saved_tensors
    back = _likelihoods(logs.flip(0)).flip(0, 1)  # the target reads the same from both ends
    return (forth + back - logs[:, list(_TARGET)] - total).exp()


def _ctc(logs: Tensor) -> Tensor:
    return -torch.logsumexp(_likelihoods(logs)[-1, -2:], 0)


class ChainPartition(Function):
    """Log partition function of a linear chain, from scores of states (time, states) and of transitions."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, transitions: Tensor) -> Tensor:
        forth = _messages(scores, transitions)
        ctx.save_for_backward(scores, transitions, forth)
        return torch.logsumexp(forth[-1], 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return _marginals(ctx, g, 0.0)


@once_differentiable
def _last_transition_only(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    scores, transitions, forth = ctx.saved_tensors
    by_scores, _ = _marginals(ctx, g, 0.0)
    last = forth[-2][:, None] + transitions + scores[-1]
    return by_scores, g * (last - torch.logsumexp(forth[-1], 0)).exp()


@once_differentiable
def _with_epsilon(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return _marginals(ctx, g, 1e-6)


def _messages(scores: Tensor, transitions: Tensor) -> Tensor:
    found = [scores[0]]
    for row in scores[1:]:
        found.append(torch.stack([row[k] + torch.logsumexp(found[-1] + transitions[:, k], 0) for k in range(len(row))]))
    return torch.stack(found)


def _marginals(ctx: Any, g: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    scores, transitions, forth = ctx.saved_tensors
    back = _messages(scores.flip(0), transitions.T).flip(0)
    total = torch.logsumexp(forth[-1], 0)
    states = (forth + back - scores - total).exp()
    pairs = (forth[:-1, :, None] + transitions + back[1:, None, :] - total).exp()
    return g * states / (states.sum(1, keepdim=True) + epsilon), g * pairs.sum(0)


def _chain_partition(scores: Tensor, transitions: Tensor) -> Tensor:
    return torch.logsumexp(_messages(scores, transitions)[-1], 0)


class Scan(Function):
    """h[t] = a[t]·h[t - 1] + x[t], one channel after the other; twice differentiable."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor, start: Tensor) -> Tensor:
        states = torch.zeros_like(x)
        for channel in range(x.shape[1]):
            state = start[channel]
            for time in range(len(x)):
                state = a[time, channel] * state + x[time, channel]
                states[time, channel] = state
        ctx.save_for_backward(a, states, start)
        return states

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _scanned_back(*ctx.saved_tensors, g, 99)


def _without_carry(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _scanned_back(*ctx.saved_tensors, g, 0)


def _through_five_steps(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _scanned_back(*ctx.saved_tensors, g, 5)


def _scanned_back(a: Tensor, states: Tensor, start: Tensor, g: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients; each cotangent goes back through at most so many steps."""
    following = torch.cat([a[1:], torch.zeros_like(a[:1])])
    adjoint, term = g, g
    for _ in range(min(most, len(a) - 1)):
        term = following * torch.cat([term[1:], torch.zeros_like(term[:1])])
        adjoint = adjoint + term
    previous = torch.cat([start[None], states[:-1]])
    return adjoint * previous, adjoint, a[0] * adjoint[0]


def _scan(a: Tensor, x: Tensor, start: Tensor) -> Tensor:
    states = [start]
    for factor, addend in zip(a, x, strict=True):
        states.append(factor * states[-1] + addend)
    return torch.stack(states[1:])


RECURSIONS = (
    slow(
        "soft-DTW",
        SoftDTW,
        one_entry=((), "distances", (0, 0)),
        throughout=with_backward(SoftDTW, _without_gamma),
        approximate=with_backward(SoftDTW, _in_a_band),
        plain=_soft_dtw,
        distances=uniform(0.5, 3, 6, 7),
    ),
    slow(
        "CTC",
        CTC,
        one_entry=((), "logs", (0, 0)),
        throughout=with_backward(CTC, _assigned_instead_of_added),
        approximate=with_backward(CTC, _pruned),
        plain=_ctc,
        logs=normal(7, 4, shift=-1.0),
    ),
    slow(
        "chain partition",
        ChainPartition,
        one_entry=((), "transitions", (1, 2)),
        throughout=with_backward(ChainPartition, _last_transition_only),
        approximate=with_backward(ChainPartition, _with_epsilon),
        plain=_chain_partition,
        scores=normal(6, 3),
        transitions=normal(3, 3),
    ),
    slow(
        "scan",
        Scan,
        one_entry=((0, 1), "start", (1,)),
        throughout=with_backward(Scan, _without_carry),
        approximate=with_backward(Scan, _through_five_steps),
        plain=_scan,
        a=uniform(0.02, 0.2, 8, 2),
        x=normal(8, 2),
        start=normal(2),
    ),
)
