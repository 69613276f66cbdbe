"""Sizes and numbers of dimensions: 1, 2, odd, prime, one beside and at a block size; one dimension more or less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from gradverify.case import Case
from gradverify.exploration.change import Base, Change
from gradverify.exploration.dims import Dimension, dimensions, resized, shapes, with_size
from gradverify.exploration.inputs import is_fixed
from gradverify.exploration.legal import allowed
from gradverify.exploration.slices import why_no_map, why_not_broadcast

SIZES, RANK = "sizes", "rank"
_SMALL = (2, 3, 5, 7, 8, 13, 16, 17)
_LARGE = (33, 64, 65, 100, 129, 257)  # for blocks that are not seen in the code
_MOST_BLOCKS = 3
_MOST = 4096  # for larger blocks, one size beyond it is tried, last


def of_other_sizes(base: Base) -> Iterator[Change]:
    """Yield cases of other sizes, the first of each dimension before the second of any."""
    ways = [(found, _sizes(base, found)) for found in dimensions(base)]
    for number in range(max((len(sizes) for _, sizes in ways), default=0)):
        for dimension, sizes in ways:
            if number < len(sizes):
                yield _resize(base, dimension, sizes[number])


def beside(base: Base, change: Change) -> Iterator[Change]:
    """Yield changes of sizes that another value of an argument may need: multiples of it, and equal ones."""
    found = [each for each in dimensions(base) if change.names[0] not in each.arguments]
    if change.factor is not None:
        for dimension in found:
            yield _resize(base, dimension, dimension.size * change.factor)
            if dimension.size % change.factor == 0 < dimension.size:
                yield _resize(base, dimension, dimension.size // change.factor)
    largest = max((dimension.size for dimension in found), default=0)
    apply = partial(_all_resized, base, [each for each in found if not each.beside_equals], largest)
    yield Change(kind=SIZES, phrase=f"all sizes {largest}", apply=apply, size=largest)


def of_other_rank(base: Base) -> Iterator[Change]:
    """Yield cases with a leading dimension more, or one less, of all tensors and of each alone."""
    ranks = {path: shape for path, shape, _ in shapes(base.case, base.tools) if not is_fixed(base.case, path)}
    most = max(map(len, ranks.values()), default=0)
    groups = dict.fromkeys((tuple(ranks), tuple(p for p in ranks if len(ranks[p]) == most), *((p,) for p in ranks)))
    for paths in groups:
        if paths:
            yield _reshape(base, paths, {path: (2, *ranks[path]) for path in paths}, "a leading dimension of 2", paths)
            one = {path: (1, *ranks[path]) for path in paths}
            yield _reshape(base, paths, one, "a leading dimension of 1", paths)
    for paths in groups:
        if paths and all(ranks[path] for path in paths):
            less = {path: ranks[path][1:] for path in paths}
            yield _reshape(base, paths, less, "without the first dimension", ())
    for paths in groups:
        if paths:
            yield _reshape(base, paths, {p: (2, 2, *ranks[p]) for p in paths}, "two leading dimensions of 2", paths)


def _sizes(base: Base, dimension: Dimension) -> list[int]:
    size = dimension.size
    blocks = [number for number in base.seen.integers if number >= 2][:_MOST_BLOCKS]
    at_blocks = [at for block in blocks if block <= _MOST for at in (block + 1, block, block - 1)]
    beyond = [block + 1 for block in blocks if block > _MOST]  # a forward takes long there
    found = dict.fromkeys((1, size + 1, size - 1, *at_blocks, *_SMALL, 2 * size, *_LARGE, *beyond))
    rule = base.case.explore.sizes.get(dimension.name)
    step = 1 if rule is None else rule.multiple_of
    limits = () if rule is None else (rule.low, rule.high or size)
    near = dict.fromkeys(-(-other // step) * step for other in (*limits, *found))
    return [other for other in near if other not in (size, 0) and allowed(base.case, dimension.name, other)]


def _resize(base: Base, dimension: Dimension, size: int) -> Change:
    broadcast = [
        partial(why_not_broadcast, *place, dimension.size) for place in dimension.places if dimension.beside_equals
    ]
    return Change(
        kind=SIZES,
        phrase=f"{dimension.name}: {size} (was {dimension.size})",
        apply=partial(_resized, base, dimension, size),
        size=size,
        names=tuple(path for path, _ in dimension.places) or (dimension.name,),
        rules=tuple(broadcast) if size == 1 else (),
    )


def _resized(base: Base, dimension: Dimension, size: int, case: Case) -> Case:
    return with_size(case, dimension, size, base.tools)


def _all_resized(base: Base, found: Sequence[Dimension], size: int, case: Case) -> Case:
    for dimension in found:
        case = with_size(case, dimension, size, base.tools)
    return case


def _reshape(
    base: Base, paths: tuple[str, ...], new: dict[str, tuple[int, ...]], what: str, mapped: tuple[str, ...]
) -> Change:
    def apply(case: Case) -> Case:
        for path in paths:
            case = resized(case, path, new[path], base.tools)
        return case

    phrase = f"{', '.join(paths)}: {what}"
    rules = (partial(why_no_map, mapped),) if mapped else ()
    return Change(kind=RANK, phrase=phrase, apply=apply, names=paths, rules=rules)
