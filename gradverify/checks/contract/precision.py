"""GV601: float64 in, float64 out, and less in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from gradverify.checks.contract.casts import Casts
from gradverify.checks.contract.noise import Loudness, largest
from gradverify.checks.contract.subject import Subject
from gradverify.checks.contract.wording import accusation, remark
from gradverify.result import Finding

_DOUBLE = {torch.float64, torch.complex128}
_COARSE = 2.0**-8  # noise above this part of a narrower dtype's eps is that dtype's, relative to the largest entry


def findings(subject: Subject, noise: Loudness, casts: Casts) -> Iterator[Finding]:
    """GV601: in float64, gradients are computed in float64; as coarse as forward itself is only worth a remark.

    Two things must come together: a cast that was seen, and noise that shows in the result.
    """
    tensors = [primal.tensor for primal in subject.primals] + [output.tensor for output in subject.tape.outputs]
    if any(tensor.dtype not in _DOUBLE for tensor in tensors):
        return
    if casts.forward and noise.outputs > _floor(casts.forward):
        yield remark("GV601", f"forward computes in {_words(casts.forward)} though everything it gets is float64")
        return
    if not casts.backward:
        return
    loud = [
        primal.name
        for primal, level, answer in zip(subject.primals, noise.answer, subject.answer, strict=True)
        if level > _floor(casts.backward) * largest(answer)
    ]
    if loud:
        text = f"backward computes in {_words(casts.backward)}, forward in float64"
        yield accusation("GV601", f"{text}: the gradient by {', '.join(loud)} loses digits")


def _floor(dtypes: Iterable[torch.dtype]) -> float:
    return _COARSE * min(torch.finfo(dtype).eps for dtype in dtypes)


def _words(dtypes: Iterable[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
