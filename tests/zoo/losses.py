"""Losses and divergences."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tests.zoo.specimen import Specimen, at, fixed, integers, normal, specimen, uniform

_LOSS = "loss"


def _focal(x: Tensor, y: Tensor) -> Tensor:
    p = x.sigmoid()
    agree = torch.where(y > 0, p, 1 - p)
    return (-((1 - agree) ** 2) * agree.log()).mean()


def _dice(x: Tensor, y: Tensor) -> Tensor:
    p = x.sigmoid()
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


def _infonce(x: Tensor, y: Tensor) -> Tensor:
    logits = functional.normalize(x, dim=1) @ functional.normalize(y, dim=1).mT / 0.07
    return functional.cross_entropy(logits, torch.arange(len(x)))


def _bits() -> object:
    return fixed(1.0, 0.0, 1.0, 1.0, dtype=torch.float64)


LOSSES: tuple[Specimen, ...] = (
    specimen("mean squared error", functional.mse_loss, _LOSS, x=normal(3, 2), y=normal(3, 2)),
    specimen("cross entropy", functional.cross_entropy, _LOSS, "integers", x=normal(3, 4), y=integers(4, 3)),
    specimen(
        "cross entropy of sure logits",
        functional.cross_entropy,
        _LOSS,
        "integers",
        "saturated",
        x=normal(3, 4, scale=30),
        y=integers(4, 3),
    ),
    specimen(
        "cross entropy with smoothing and weights",
        lambda x, y, w: functional.cross_entropy(x, y, w, label_smoothing=0.1),
        _LOSS,
        x=normal(3, 4),
        y=integers(4, 3),
        w=fixed(0.1, 1.0, 2.0, 1.0, dtype=torch.float64),
    ),
    specimen("cross entropy with ignored labels", functional.cross_entropy, _LOSS, x=normal(3, 4), y=fixed(1, -100, 2)),
    specimen("cross entropy with soft labels", functional.cross_entropy, _LOSS, x=normal(2, 3), y=normal(2, 3)),
    specimen("negative log likelihood", functional.nll_loss, _LOSS, x=normal(3, 4), y=integers(4, 3)),
    specimen("binary cross entropy", functional.binary_cross_entropy, _LOSS, p=uniform(0.05, 0.95, 4), y=_bits()),
    specimen(
        "binary cross entropy near 0 and 1",
        functional.binary_cross_entropy,
        _LOSS,
        "wrong at order 2",
        p=at(1e-6, 0.5, 1 - 1e-6, 0.9),
        y=_bits(),
    ),
    specimen("bce with logits", functional.binary_cross_entropy_with_logits, _LOSS, x=normal(4, scale=20), y=_bits()),
    specimen(
        "KL of logs",
        lambda p, q: functional.kl_div(p.log_softmax(-1), q.log_softmax(-1), log_target=True, reduction="batchmean"),
        _LOSS,
        p=normal(2, 4),
        q=normal(2, 4),
    ),
    specimen(
        "KL to equal",
        lambda p, q: functional.kl_div(p.log_softmax(-1), q.log_softmax(-1), log_target=True, reduction="sum"),
        _LOSS,
        "zero gradient",
        p=at([1.0, 2.0, 0.5]),
        q=at([1.0, 2.0, 0.5]),
    ),
    specimen(
        "Jensen-Shannon", lambda p, q: _jensen_shannon(p.softmax(-1), q.softmax(-1)), _LOSS, p=normal(4), q=normal(4)
    ),
    specimen("huber", functional.huber_loss, _LOSS, x=normal(6, scale=2), y=normal(6, scale=2)),
    specimen(
        "smooth l1 without reduction",
        lambda x, y: functional.smooth_l1_loss(x, y, reduction="none", beta=0.5),
        _LOSS,
        x=normal(6),
        y=normal(6),
    ),
    specimen("log cosh", lambda x: x.cosh().log().sum(), _LOSS, x=normal(5)),
    specimen("poisson", functional.poisson_nll_loss, _LOSS, x=normal(4), y=uniform(0.5, 4, 4)),
    specimen(
        "gaussian likelihood", functional.gaussian_nll_loss, _LOSS, x=normal(4), y=normal(4), v=uniform(0.2, 2, 4)
    ),
    specimen(
        "cosine embedding", lambda x, y: functional.cosine_similarity(x, y).sum(), _LOSS, x=normal(3, 4), y=normal(3, 4)
    ),
    specimen(
        "triplet with margin",
        lambda a, p, n: functional.triplet_margin_loss(a, p, n, margin=5.0),
        _LOSS,
        a=normal(2, 3),
        p=normal(2, 3),
        n=normal(2, 3),
    ),
    specimen(
        "hinge embedding",
        functional.hinge_embedding_loss,
        _LOSS,
        x=normal(4),
        y=fixed(1.0, -1.0, 1.0, -1.0, dtype=torch.float64),
    ),
    specimen("multi-margin", functional.multi_margin_loss, _LOSS, x=normal(3, 4), y=integers(4, 3)),
    specimen(
        "ctc",
        lambda x: functional.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2]]), (4,), (2,)),
        _LOSS,
        x=normal(4, 1, 3),
    ),
    specimen("focal", _focal, _LOSS, x=normal(4, scale=2), y=_bits()),
    specimen("focal of sure logits", _focal, _LOSS, "saturated", x=at(15.0, -15.0, 10.0, 5.0), y=_bits()),
    specimen("dice", _dice, _LOSS, x=normal(4), y=_bits()),
    specimen("contrastive", _infonce, _LOSS, x=normal(3, 4), y=normal(3, 4)),
    specimen("charbonnier", lambda x: (x * x + 1e-6).sqrt().sum(), _LOSS, x=at(0.0, 1e-4, 1e-3, 1.0)),
    specimen(
        "wing",
        lambda x: torch.where(x.abs() < 1, 2 * (1 + x.abs() / 0.5).log(), x.abs() - 1).sum(),
        _LOSS,
        x=at(0.5, -0.3, 2.0),
    ),
    specimen("total variation", lambda x: x.diff(dim=0).abs().sum() + x.diff(dim=1).abs().sum(), _LOSS, x=normal(3, 3)),
    specimen(
        "label margin at scale",
        lambda x, y: functional.cross_entropy(30 * functional.normalize(x), y),
        _LOSS,
        x=normal(2, 4),
        y=integers(4, 2),
    ),
)


def _jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    middle = (p + q) / 2
    return (p * (p / middle).log() + q * (q / middle).log()).sum() / 2
