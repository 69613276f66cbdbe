"""Names for sizes that agreed in all calls, and smaller sizes that are tried in their place."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from gradverify.author.recording.groups import Group, tensors_of
from gradverify.author.recording.notes import SeenPlain, SeenSize, Signature

_LETTERS = ("n", "d", "k", "m", "p", "q", "r", "s", "t", "u", "v", "w")
_IMAGE = ("n", "c", "h", "w")
_FEW = (4, 6, 5, 3, 7)  # small sizes, if no tensor has more than two dimensions
_MANY = (2, 4, 3, 5, 6, 7)  # if some tensor has more
_EVEN = (2, 4, 6, 8, 10, 12)
_BLOCKS = (16, 32, 64)  # sizes that kernels need
_MOST_RECORDED = 20_000  # entries of all tensors at recorded sizes, for a check of every entry

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The sizes of a group by name."""

    entries: Mapping[tuple[str, int], str | int]  # name, expression or number of each dimension of each input
    recorded: tuple[Sizes, ...]  # the sizes of each signature


def named_sizes(group: Group) -> Named:
    """Return a name for each size: one name for sizes that are equal in all signatures; 1 in all of them stays 1."""
    columns = _columns(group)
    letters = _free_letters(group)
    names: dict[tuple[int, ...], str] = {}
    entries: dict[tuple[str, int], str | int] = {}
    for place, column in columns.items():
        if set(column) == {1}:
            entries[place] = 1
        else:
            if column not in names:
                names[column] = next(letters)
            entries[place] = names[column]
    entries |= _size_arguments(group, names)
    recorded = tuple({name: column[row] for column, name in names.items()} for row in range(len(group.signatures)))
    return Named(entries=entries, recorded=recorded)


def with_multiples(named: Named) -> Named:
    """Return the sizes with those that are a multiple of another one in all signatures as expressions of it."""
    columns = {name: tuple(sizes[name] for sizes in named.recorded) for name in named.recorded[0]}
    related: dict[str, str] = {}
    for name, column in columns.items():
        for other, base in columns.items():
            factors = {large // small if large % small == 0 else 0 for large, small in zip(column, base, strict=True)}
            if other != name and other not in related and len(factors) == 1 and min(factors) > 1:
                related[name] = f"{factors.pop()} * {other}"
                break
    entries = {
        place: related.get(entry, entry) if isinstance(entry, str) else entry for place, entry in named.entries.items()
    }
    kept = [name for name in columns if name not in related]
    return Named(entries=entries, recorded=tuple({name: sizes[name] for name in kept} for sizes in named.recorded))


def smaller_sizes(group: Group, named: Named) -> Iterator[tuple[Named, Sizes]]:
    """Yield sizes to try for the small case, with the names that they belong to, the best first; each once."""
    tried: list[tuple[Named, Sizes]] = []
    for attempt in _attempts(group, named):
        if attempt not in tried:
            tried.append(attempt)
            yield attempt


def _attempts(group: Group, named: Named) -> Iterator[tuple[Named, Sizes]]:
    least = {name: min(sizes[name] for sizes in named.recorded) for name in named.recorded[0]}
    most_dimensions = max((len(tensor.shape) for tensor in tensors_of(group.signatures[0]).values()), default=0)
    small = _shrunk(least, _FEW if most_dimensions <= 2 else _MANY)
    multiples = with_multiples(named)
    yield named, small
    yield multiples, {name: small[name] for name in multiples.recorded[0]}
    yield multiples, _shrunk({name: least[name] for name in multiples.recorded[0]}, _EVEN)
    yield named, _divisible(group, named, small)
    for name, size in least.items():
        yield named, {**small, name: size}
    for name in least:
        yield named, {each: small[each] if each == name else size for each, size in least.items()}
    for block in _BLOCKS:
        yield named, {name: min(size, block) for name, size in least.items()}
    smallest = min(named.recorded, key=lambda sizes: sum(sizes.values()))
    if _entries_at(group, named.recorded.index(smallest)) <= _MOST_RECORDED:
        yield named, smallest


def _shrunk(least: Sizes, candidates: Sequence[int]) -> Sizes:
    """Return small sizes, distinct as far as there are candidates, none above the least recorded one."""
    more = (candidates[-1] + number for number in count(1))
    free = iter(candidates)
    return {name: min(size, next(free, 0) or next(more)) for name, size in least.items()}


def _divisible(group: Group, named: Named, small: Sizes) -> Sizes:
    """Return sizes that are multiples of the whole numbers among the arguments, if the recorded ones are."""
    sizes = dict(small)
    for name in sizes:
        recorded = [each[name] for each in named.recorded]
        for number in _whole_numbers(group.signatures[0]):
            if all(size % number == 0 for size in recorded):
                sizes[name] = min(*recorded, number if set(recorded) == {number} else 2 * number)
                break
    return sizes


def _whole_numbers(signature: Signature) -> list[int]:
    """Return the numbers above 1 among the arguments and in their tuples, largest first."""
    found: list[int] = []
    for argument in signature.arguments.values():
        value = argument.value if isinstance(argument, SeenPlain) else None
        entries = value.get("tuple", []) if isinstance(value, dict) else value if isinstance(value, list) else [value]
        found += [entry for entry in entries if type(entry) is int and entry > 1]
    return sorted(set(found), reverse=True)


def _entries_at(group: Group, row: int) -> int:
    from math import prod

    return sum(prod(tensor.shape) for tensor in tensors_of(group.signatures[row]).values())


def _columns(group: Group) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the sizes of each dimension of each tensor, one per signature."""
    rows = [
        {(name, axis): size for name, tensor in tensors_of(each).items() for axis, size in enumerate(tensor.shape)}
        for each in group.signatures
    ]
    return {place: tuple(row[place] for row in rows) for place in rows[0]}


def _size_arguments(group: Group, names: Mapping[tuple[int, ...], str]) -> dict[tuple[str, int], str | int]:
    """Return the entries of arguments that are a torch.Size: the name of a dimension that always had this size."""
    found: dict[tuple[str, int], str | int] = {}
    for name, argument in group.signatures[0].arguments.items():
        if not isinstance(argument, SeenSize):
            continue
        for axis, size in enumerate(argument.size):
            column = tuple(_size(signature, name, axis) for signature in group.signatures)
            found[name, axis] = names.get(column, size)
    return found


def _size(signature: Signature, name: str, axis: int) -> int:
    argument = signature.arguments[name]
    return argument.size[axis] if isinstance(argument, SeenSize) else 0


def _free_letters(group: Group) -> Iterator[str]:
    """Yield names for sizes that no input has."""
    taken = set(group.signatures[0].arguments)
    first = next(iter(tensors_of(group.signatures[0]).values()), None)
    letters = (*_IMAGE, *_LETTERS) if first is not None and len(first.shape) == 4 else _LETTERS
    is_free: Callable[[str], bool] = lambda name: name not in taken and not keyword.iskeyword(name)  # noqa: E731
    yield from filter(is_free, dict.fromkeys(letters))
    yield from filter(is_free, (f"size{number}" for number in count(1)))
