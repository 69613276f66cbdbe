"""Gather, scatter, masks and rearrangements."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.zoo.specimen import Specimen, fixed, integers, normal, specimen, uniform

_I = "indexing"

INDEXING: tuple[Specimen, ...] = (
    specimen("gather", lambda x, i: x.gather(1, i), _I, "integers", x=normal(3, 4), i=integers(4, 3, 2)),
    specimen(
        "index select with repeats", lambda x, i: x.index_select(0, i), _I, "integers", x=normal(4, 2), i=fixed(0, 0, 3)
    ),
    specimen(
        "advanced index", lambda x, i, j: x[i, j], _I, "integers", x=normal(4, 4), i=integers(4, 5), j=integers(4, 5)
    ),
    specimen("boolean mask", lambda x, m: x[m], _I, "bools", x=normal(4), m=fixed(True, False, True, True)),
    specimen("scatter add", lambda x, s, i: x.scatter_add(0, i, s), _I, x=normal(4), s=normal(6), i=integers(4, 6)),
    specimen("scatter overwrites", lambda x, s: x.scatter(0, torch.tensor([2, 0]), s), _I, x=normal(4), s=normal(2)),
    specimen(
        "scatter product",
        lambda x, s, i: x.scatter_reduce(0, i, s, "prod"),
        _I,
        x=normal(3),
        s=normal(5),
        i=integers(3, 5),
    ),
    specimen("index add", lambda x, s, i: x.index_add(0, i, s), _I, x=normal(3, 2), s=normal(4, 2), i=integers(3, 4)),
    specimen(
        "index put accumulating",
        lambda x, s, i: x.index_put((i,), s, accumulate=True),
        _I,
        x=normal(4),
        s=normal(5),
        i=integers(4, 5),
    ),
    specimen("embedding", lambda w, i: functional.embedding(i, w), _I, "integers", w=normal(5, 2), i=integers(5, 4)),
    specimen(
        "embedding bag",
        lambda w, i: functional.embedding_bag(i, w, torch.tensor([0, 2]), mode="mean"),
        _I,
        w=normal(5, 2),
        i=integers(5, 5),
    ),
    specimen("where", torch.where, _I, "bools", m=fixed(True, False, True), x=normal(3), y=normal(3)),
    specimen(
        "masked scatter",
        lambda x, m, s: x.masked_scatter(m, s),
        _I,
        x=normal(4),
        m=fixed(False, True, True, False),
        s=normal(2),
    ),
    specimen("roll and flip", lambda x: x.roll(1, 0).flip(1), _I, x=normal(3, 3)),
    specimen("triangle and diagonal", lambda x: x.tril() + x.diag().diag_embed(), _I, x=normal(3, 3)),
    specimen("strided slice written to", lambda x, y: _written(x, y), _I, x=normal(6), y=normal(3)),
    specimen("repeat interleave", lambda x, n: x.repeat_interleave(n), _I, x=normal(3), n=fixed(2, 0, 3)),
    specimen("as strided with overlap", lambda x: x.as_strided((3, 3), (1, 1)), _I, x=normal(5)),
    specimen("unfold a dimension", lambda x: x.unfold(0, 3, 2), _I, x=normal(7)),
    specimen(
        "segment means",
        lambda x, i: torch.zeros(3, dtype=x.dtype).index_add(0, i, x) / torch.bincount(i, minlength=3).clamp(min=1),
        _I,
        x=normal(6),
        i=integers(3, 6),
    ),
    specimen(
        "take along the sort",
        lambda x, y: y.take_along_dim(x.argsort(), 0),
        _I,
        "vacuous in x",
        x=normal(5),
        y=normal(5),
    ),
    specimen(
        "bucketed",
        lambda x, w: w[torch.bucketize(x.detach(), torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype))] * x,
        _I,
        x=normal(5),
        w=normal(4),
    ),
    specimen("linear table lookup", lambda x, t: _lookup(x, t), _I, x=uniform(0.1, 3.9, 4), t=normal(5)),
    specimen("pack of lengths", lambda x: torch.nn.utils.rnn.pad_sequence([x[:2], x[2:]]), _I, x=normal(5)),
    specimen("combinations", lambda x: torch.combinations(x).prod(1), _I, x=normal(4)),
)


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[::2] = y * x[1::2]
    return result


def _lookup(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    low = x.detach().floor().long().clamp(0, 3)
    share = x - low
    return table[low] * (1 - share) + table[low + 1] * share
