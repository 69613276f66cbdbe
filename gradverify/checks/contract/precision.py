"""GV601: a computation in lower precision between float64 inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from gradverify.checks.contract.casts import Casts
from gradverify.checks.contract.noise import NoiseLevels, largest
from gradverify.checks.contract.subject import Subject
from gradverify.checks.contract.wording import failure, remark
from gradverify.result import Finding

_DOUBLE = {torch.float64, torch.complex128}
# Times the narrower dtype's eps: noise above this, relative to the largest entry, comes from that dtype.
_COARSE = 2.0**-8


def findings(subject: Subject, noise: NoiseLevels, casts: Casts) -> Iterator[Finding]:
    """GV601: float64 gradients are computed in float64; a forward in lower precision is only a remark.

    Reported if there is both a cast and noise above that dtype's floor.
    """
    tensors = [primal.tensor for primal in subject.primals] + [output.tensor for output in subject.tape.outputs]
    if any(tensor.dtype not in _DOUBLE for tensor in tensors):
        return
    if casts.forward and noise.outputs > _floor(casts.forward):
        yield remark("GV601", f"forward computes in {_words(casts.forward)} though everything it gets is float64")
        return
    if not casts.backward:
        return
    noisy = [
        primal.name
        for primal, level, answer in zip(subject.primals, noise.gradients, subject.gradients, strict=True)
        if level > _floor(casts.backward) * largest(answer)
    ]
    if noisy:
        text = f"backward computes in {_words(casts.backward)}, forward in float64"
        yield failure("GV601", f"{text}: the gradient by {', '.join(noisy)} loses digits")


def _floor(dtypes: Iterable[torch.dtype]) -> float:
    """Return the relative noise above which one of these dtypes is the cause."""
    return _COARSE * min(torch.finfo(dtype).eps for dtype in dtypes)


def _words(dtypes: Iterable[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
