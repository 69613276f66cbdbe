"""Which coordinates the forward has a kink in, asked by order 2."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from gradverify.core.function.noise import measure
from gradverify.core.function.sampler import Sampler
from gradverify.core.function.scale import scales
from gradverify.core.numeric.ladder import coarse_steps, fine_steps, halving_steps
from gradverify.core.numeric.moves import single_moves
from gradverify.core.numeric.nonsmooth import examine
from gradverify.core.numeric.samples import joined
from gradverify.core.numeric.walk import sample


def kinked_columns(sampled: Sampler, columns: Tensor, seed: int) -> Tensor:
    """Tell for each coordinate (C,) whether some output has a kink in it at the point, or next to it.

    Columns beyond the problem's own primals (cotangents) have none.
    """
    lengths = scales(sampled)
    noise = measure(sampled, lengths, seed)
    moves = single_moves(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    kinked = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    for place, column in enumerate(columns.tolist()):
        if column < sampled.point.numel():
            own = torch.tensor([column], device=columns.device)
            steps = (halving_steps(lengths), coarse_steps(lengths), fine_steps(lengths, own))
            ladder = reduce(joined, (sample(sampled, moves, own, part) for part in steps))
            local = examine(sampled, noise, ladder, lengths.own[own].unsqueeze(1))
            kinked[place] = (local.kink | local.close).any()
    return kinked
