"""Sizes and numbers of dimensions: 1, 2, odd, prime, one beside and at a block size; one dimension more or less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod

from gradverify.case import Case
from gradverify.core.model.problem import Problem
from gradverify.exploration.change import Base, Change, Rule
from gradverify.exploration.dims import (
    Dimension,
    dimensions,
    named_places,
    outputs_if_legal,
    resized,
    shapes,
    why_tied,
    with_size,
)
from gradverify.exploration.inputs import is_fixed, tensor_at, tensor_inputs, with_tensor
from gradverify.exploration.legal import allowed
from gradverify.exploration.slices import (
    Copies,
    all_equal,
    last_matters,
    outputs,
    why_no_map,
    why_not_broadcast,
)
from gradverify.exploration.tools import Tools

SIZES, RANK = "sizes", "rank"
_SMALL = (2, 3, 5, 7, 8, 13, 16, 17)
_LARGE = (33, 64, 65, 100, 129, 257)  # for blocks that are not seen in the code
_MOST_BLOCKS = 3
_MOST = 4096  # for larger blocks, one size beyond it is tried, last


def of_other_sizes(base: Base) -> Iterator[Change]:
    """Yield cases of other sizes, the first of each dimension before the second of any."""
    ways = [
        [resize(base, found, size, *rules) for size in _sizes(base, found)]
        for found, rules in ((found, uncut(base, found)) for found in dimensions(base))
    ]
    for number in range(max(map(len, ways), default=0)):
        yield from (way[number] for way in ways if number < len(way))


def beside(base: Base, change: Change) -> Iterator[Change]:
    """Yield changes of sizes that another value of an argument may need: multiples of it, and equal ones."""
    found = [each for each in dimensions(base) if change.names[0] not in each.arguments]
    if change.factor is not None:
        for dimension in found:
            yield resize(base, dimension, dimension.size * change.factor)
            if dimension.size % change.factor == 0 < dimension.size:
                yield resize(base, dimension, dimension.size // change.factor)
    largest = max((dimension.size for dimension in found), default=0)
    every = [each for each in found if not each.beside_equals]
    as_indices = [replace(each, beside_equals=True) for each in every]  # what ascends to a size may be no offsets
    for resized_too, phrase in ((every, ""), (as_indices, ", the same indices")):
        apply = partial(_all_resized, base, resized_too, largest)
        yield Change(kind=SIZES, phrase=f"all sizes {largest}{phrase}", apply=apply, size=largest)


def of_other_rank(base: Base) -> Iterator[Change]:
    """Yield cases with a leading dimension more, or one less, of all tensors and of each alone, and with one split.

    An input that loses its first dimension where another keeps one has to be broadcast. None loses one with a name that
    another keeps.
    """
    ranks = {path: shape for path, shape, _ in shapes(base.case, base.tools) if not is_fixed(base.case, path)}
    most = max(map(len, ranks.values()), default=0)
    groups = dict.fromkeys((tuple(ranks), tuple(p for p in ranks if len(ranks[p]) == most), *((p,) for p in ranks)))
    for paths in groups:
        if paths:
            rule = partial(why_no_map, paths)
            yield _reshape(base, {p: (2, *ranks[p]) for p in paths}, "a leading dimension of 2", rule)
            yield _reshape(base, {p: (1, *ranks[p]) for p in paths}, "a leading dimension of 1", rule)
    yield from _split(base)
    for paths in groups:
        if paths and all(ranks[path] for path in paths) and not _names_kept(base.case, paths):
            copies = {path: Copies(count=ranks[path][0], is_new=True) for path in paths}
            new = {path: ranks[path][1:] for path in paths}
            if any(shape for path, shape in ranks.items() if path not in paths):
                yield _reshape(base, new, "without the first dimension", partial(why_not_broadcast, copies))
            elif len({ranks[path][0] for path in paths}) == 1:
                yield _reshape(base, new, "without the first dimension")
    for paths in groups:
        if paths:
            new = {path: (2, 2, *ranks[path]) for path in paths}
            yield _reshape(base, new, "two leading dimensions of 2", partial(why_no_map, paths))


def _names_kept(case: Case, paths: Sequence[str]) -> set[str]:
    """Return the names of the first sizes of some tensors that other tensors have too."""
    written = {path: given.sizes or () for path, given in tensor_inputs(case).items()}
    first = {size for path in paths for size in written[path][:1] if isinstance(size, str)}
    others = {size for path, sizes in written.items() if path not in paths for size in sizes if isinstance(size, str)}
    return first & others


def _split(base: Base) -> Iterator[Change]:
    """Yield cases in which a size makes two dimensions: itself by 2, as images in place of sequences, or by 1.

    Where equal sizes stay, a dimension of 1 would be broadcast.
    """
    for dimension in dimensions(base):
        places, size = dimension.places or named_places(base.case, dimension.name), dimension.size
        if size and places and not dimension.arguments and len(dict(places)) == len(places):
            yield _as_two(base, dimension, dict(places), (size, 2))
            if not dimension.beside_equals:
                yield _as_two(base, dimension, dict(places), (size, 1))


def _as_two(base: Base, dimension: Dimension, places: Mapping[str, int], two: tuple[int, int]) -> Change:
    def rule(case: Case, problem: Problem, tools: Tools) -> str:
        if two[1] == 1:  # forward may take a single slice by coincidence
            case = _with_two(base, dimension, places, (two[0], 2), base.case)
            problem = tools.build(case)
        return _why_not_flat(places, case, problem, tools)

    return Change(
        kind=RANK,
        phrase=f"{dimension.name}: {two[0]} by {two[1]} (was {dimension.size})",
        apply=partial(_with_two, base, dimension, places, two),
        names=tuple(places),
        rules=(rule,),
    )


def _with_two(base: Base, dimension: Dimension, places: Mapping[str, int], two: tuple[int, int], case: Case) -> Case:
    case = with_size(case, dimension, prod(two), base.tools)
    for path, axis in places.items():
        values = tensor_at(case, path, base.tools)
        shape = (*values.shape[:axis], *two, *values.shape[axis + 1 :])
        case = with_tensor(case, path, values.reshape(shape))
    return case


def _why_not_flat(places: Mapping[str, int], case: Case, problem: Problem, tools: Tools) -> str:
    """Return "" if forward returns what it returns for one dimension in place of the two at `places`; may raise."""
    found = outputs(problem)
    for path, axis in places.items():
        case = with_tensor(case, path, tensor_at(case, path, tools).flatten(axis, axis + 1))
    flat = outputs_if_legal(case, tools)
    if flat is not None and all_equal([each.reshape(-1) for each in found], [each.reshape(-1) for each in flat]):
        return ""
    return "forward takes no second dimension"


def _sizes(base: Base, dimension: Dimension) -> list[int]:
    size = dimension.size
    blocks = [number for number in base.seen.integers if number >= 2][:_MOST_BLOCKS]
    at_blocks = [at for block in blocks if block <= _MOST for at in (block + 1, block, block - 1)]
    beyond = [block + 1 for block in blocks if block > _MOST]  # a forward takes long there
    others = [other for _, shape, _ in shapes(base.case, base.tools) for other in shape]
    small = others if size == 1 else (1,)  # a single slice may stand for as many as another tensor has
    found = dict.fromkeys((*small, size + 1, size - 1, *at_blocks, *_SMALL, 2 * size, *_LARGE, *beyond))
    rule = base.case.explore.sizes.get(dimension.name)
    step = 1 if rule is None else rule.multiple_of
    limits = () if rule is None else (rule.low, rule.high or size)
    near = dict.fromkeys(-(-other // step) * step for other in (*limits, *found))
    never = (size,) if rule is not None and rule.low == 0 else (size, 0)  # a size of 0 has to be declared
    return [other for other in near if other not in never and allowed(base.case, dimension.name, other)]


def resize(base: Base, dimension: Dimension, size: int, *rules: Rule) -> Change:
    """Return the change of a size; where equal ones stay, forward has to broadcast 1, or to take any size."""
    if dimension.beside_equals and size == 1:
        copies = {path: Copies(count=dimension.size, axis=axis) for path, axis in dimension.places}
        rules = (*rules, _broadcast_or_untied(base, dimension, copies))
    return Change(
        kind=SIZES,
        phrase=f"{dimension.name}: {size} (was {dimension.size})",
        apply=partial(_resized, base, dimension, size),
        size=size,
        names=tuple(path for path, _ in dimension.places) or (dimension.name,),
        rules=rules,
    )


def uncut(base: Base, dimension: Dimension) -> tuple[Rule, ...]:
    """Return the rule that forward uses all slices where equal sizes stay; none if none stays.

    `zip` stops at the shorter one, and `gather` takes fewer labels than rows. Where outputs keep their shape with fewer
    slices, or several inputs have other sizes together, another term may use what is left out: then forward has to take
    one slice more and one less. A single slice may be broadcast, which has a rule of its own.
    """
    if not dimension.beside_equals:
        return ()
    equal = [
        (path, axis)
        for path, shape, _ in shapes(base.case, base.tools)
        for axis in range(len(shape))
        if shape[axis] == dimension.size
    ]
    written = cache(lambda: outputs(base.tools.build(base.case)))
    tied = cache(partial(why_tied, base.case, dimension, base.tools))

    @cache
    def mattered(path: str, axis: int) -> bool:
        return last_matters(base.case, written(), path, axis, base.tools)

    def rule(case: Case, problem: Problem, tools: Tools) -> str:
        sizes = {path: shape for path, shape, _ in shapes(case, tools)}
        found = outputs(problem)
        longest = max(sizes[path][axis] for path, axis in equal)
        for path, axis in equal:
            is_longest = sizes[path][axis] == longest
            if is_longest and not last_matters(case, found, path, axis, tools) and mattered(path, axis):
                return f"forward leaves out slices of {path}"
        size = sizes[dimension.places[0][0]][dimension.places[0][1]]
        keeps_shape = [each.shape for each in found] == [each.shape for each in written()]
        may_hide = len(dict(dimension.places)) > 1 or (size < dimension.size and keeps_shape)
        return tied() if may_hide and size > 1 else ""

    return (rule,)


def _broadcast_or_untied(base: Base, dimension: Dimension, copies: Mapping[str, Copies]) -> Rule:
    """Return the rule that forward broadcasts the only slice that inputs have left, or takes any number of slices."""
    tied = cache(partial(why_tied, base.case, dimension, base.tools))
    return lambda case, problem, tools: why_not_broadcast(copies, case, problem, tools) and tied()


def _resized(base: Base, dimension: Dimension, size: int, case: Case) -> Case:
    return with_size(case, dimension, size, base.tools)


def _all_resized(base: Base, found: Sequence[Dimension], size: int, case: Case) -> Case:
    for dimension in found:
        case = with_size(case, dimension, size, base.tools)
    return case


def _reshape(base: Base, new: Mapping[str, tuple[int, ...]], what: str, *rules: Rule) -> Change:
    def apply(case: Case) -> Case:
        for path, shape in new.items():
            case = resized(case, path, shape, base.tools)
        return case

    return Change(kind=RANK, phrase=f"{', '.join(new)}: {what}", apply=apply, names=tuple(new), rules=rules)
