"""An input that goes into many outputs is given the gradient of one of them, instead of their sum."""

from __future__ import annotations

from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.naming.wording import part

MISSING_BROADCAST_SUM = "missing-broadcast-sum"
ALMOST_ALL = 0.9  # of the inputs go into several outputs


def missing_broadcast_sum(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The claimed Jacobian keeps one slice of the numeric one, or one output per input, and is zero in the others."""
    if bool((seen.wrong & (seen.claimed != 0)).any()):
        return None
    return _one_slice(evidence, seen) or _one_output(evidence, seen) or _one_of_each(evidence, seen)


def _one_slice(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    shape = evidence.of.shape
    kept = (seen.claimed != 0).any(1).reshape(shape)
    entries = (~seen.zero).reshape(*shape, -1)
    for dimension in range(len(shape)):
        others = tuple(place for place in range(len(shape)) if place != dimension)
        used = (kept.any(others) if others else kept).nonzero().flatten().tolist()
        reach = (entries.any(others) if others else entries).sum(0)  # (n,) slices that an input goes into
        if len(used) != 1 or int((reach > 1).sum()) < ALMOST_ALL * int((reach > 0).sum()):
            continue
        mine = kept.new_zeros(shape)
        mine.select(dimension, used[0]).fill_(True)
        share = share_of(seen, seen.numeric.masked_fill(~mine.reshape(-1, 1), 0.0))
        if share is not None:
            return as_one_slice(evidence, dimension, used[0], share)
    return None


def as_one_slice(site: Site, dimension: int, used: int, share: float) -> Diagnosis:
    """Return the diagnosis of outputs of which one slice alone counts."""
    shape = site.of.shape
    inside = ", ".join(str(used) if place == dimension else ":" for place in range(len(shape)))
    text = f"only {site.of.name}[{inside}] counts: the sum over the {shape[dimension]} entries"
    text += f" of dimension {dimension} is missing{part(share)}"
    return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)


def _one_output(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    entries = ~seen.zero
    if not bool((entries.sum(0) > 1).any()):
        return None
    for kept, word in ((_first(entries), "first"), (_first(entries.flip(0)).flip(0), "last")):
        square = kept.shape[0] == kept.shape[1]
        if square and int(kept.sum()) == int(kept.diagonal().sum()):
            continue  # only the diagonal is there, which is another cause
        share = share_of(seen, seen.numeric.masked_fill(~kept, 0.0))
        if share is not None:
            text = f"each entry of {evidence.wrt.name} gets its gradient from the {word} output that it goes into"
            text += f": the sum over all of them is missing{part(share)}"
            return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)
    return None


def _one_of_each(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Each input gets its gradient from the first, or the last, of as many slices of the output as any other."""
    shape = evidence.of.shape
    entries = (~seen.zero).reshape(*shape, -1)
    for dimension, size in enumerate(shape):
        others = tuple(place for place in range(len(shape)) if place != dimension)
        reached = entries.any(others) if others else entries  # (size, n) slices that an input goes into
        counts = reached.sum(0)
        count = int(counts.max())
        if size < 2 or count < 2 or bool((counts[counts > 0] != count).any()):
            continue
        for kept, word in ((_first(reached), "first"), (_first(reached.flip(0)).flip(0), "last")):
            spread = kept.reshape(*(size if place == dimension else 1 for place in range(len(shape))), -1)
            share = share_of(seen, seen.numeric.masked_fill(~spread.expand_as(entries).reshape(seen.wrong.shape), 0.0))
            if share is not None:
                text = f"each entry of {evidence.wrt.name} gets its gradient from the {word} of the {count} slices of"
                text += f" {evidence.of.name} along dimension {dimension} that it goes into"
                text += f": the sum over all of them is missing{part(share)}"
                return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)
    return None


def _first(entries: Tensor) -> Tensor:
    """Return the first entry of every column that is set; (m, n) bool."""
    return entries & (entries.cumsum(0) == 1)
