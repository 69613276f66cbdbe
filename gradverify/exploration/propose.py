"""All changes of a case, in the order in which they are tried. A new kind is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gradverify.checks import precision
from gradverify.exploration.change import Base, Change
from gradverify.exploration.proposals import arguments, indices, memory, sizes, values

KINDS: tuple[Callable[[Base], Iterator[Change]], ...] = (
    arguments.proposals,
    values.within_ranges,
    values.at_constants,
    sizes.of_other_sizes,
    values.with_ties,
    values.with_zeros,
    indices.proposals,
    sizes.of_other_rank,
    values.drawn_again,
    values.of_other_scale,
    memory.of_other_dtype,
    memory.of_other_layout,
)


def proposals(base: Base) -> Iterator[Change]:
    """Yield one change of each kind in turn, until there are no more of any."""
    pending = [kind(base) for kind in KINDS]
    while pending:
        for kind in list(pending):
            change = next(kind, None)
            if change is None:
                pending.remove(kind)
            else:
                yield change


def pairs(first: Change, second: Change) -> Change:
    """Return the change that makes two changes, one after the other.

    The contract has been asked for the first alone, unless that was not legal without the sizes of the second. Long
    sums are asked `precision` alone in a pair too.
    """
    return Change(
        kind="pairs",
        phrase=f"{first.phrase} with {second.phrase}",
        apply=lambda case: second.apply(first.apply(case)),
        names=tuple(dict.fromkeys((*first.names, *second.names))),
        rules=(*first.rules, *second.rules),
        parts=(first, second),
        size=second.size if first.size is None else first.size,
        asks=second.asks if precision.NAME in second.asks else first.asks if second.kind == sizes.SIZES else (),
        far=first.far or second.far,
    )
