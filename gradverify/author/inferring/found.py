"""What trying inputs has shown so far, and which of two successes is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gradverify.author.inferring.attempt import Tried
from gradverify.author.inferring.sizes import Shape

Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Inputs to try."""

    inputs: Inputs  # with sizes by name
    table: Mapping[str, int]  # the sizes
    base: Shape  # of the largest tensor
    departs: bool  # True if some default is not kept
    guesses: int  # number of inputs that are indices or a mask although nothing says so
    has_other_number: bool  # True if a whole number is not the likeliest one


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Inputs at which forward and backward run."""

    proposal: Proposal
    tried: Tried

    @property
    def inputs(self) -> Inputs:
        return self.proposal.inputs

    @property
    def table(self) -> Mapping[str, int]:
        return self.proposal.table

    @property
    def is_doubtful(self) -> bool:
        """True if a gradient does not fit and forward broadcast its inputs: nobody may have meant these shapes."""
        return self.tried.broadcast and not self.tried.fits

    @property
    def is_idle(self) -> bool:
        """True if a gradient is zero, or forward returns its input at a number that is not the likeliest, such as 1."""
        return self.tried.has_zeros or (self.proposal.has_other_number and self.tried.is_identity)

    @property
    def is_likely(self) -> bool:
        """True if these shapes and values were probably meant."""
        return not self.is_doubtful and self.tried.repeats and not self.proposal.departs

    @property
    def is_meant(self) -> bool:
        """True if other numbers of dimensions need not be tried."""
        return self.is_likely and not self.is_idle

    @property
    def has_dimensions(self) -> bool:
        """True if some tensor has dimensions."""
        return any(_dimensions(self.inputs).values())


@dataclass(slots=True, kw_only=True)
class Record:
    """What a search has seen. The fields change during the search."""

    best: Success | None = None
    rejected: Success | None = None  # the first with dimensions at which autograd refuses what backward returns
    tries: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    furthest: dict[str, tuple[int, int]] = field(default_factory=dict)  # how far each error came
    hints: list[int] = field(default_factory=list)  # numbers of dimensions that errors named
    types: dict[str, type] = field(default_factory=dict)  # of parameters, as errors named them
    stubborn: set[tuple[Any, ...]] = field(default_factory=set)  # obstacles that other numbers did not get past


def better(best: Success | None, other: Success) -> Success:
    """Return the inputs that were more likely meant, else those that show more.

    Inputs at which two calls differ were not meant: past the end of an input, a kernel reads whatever is there. Real
    numbers without a gradient are preferred to a mask that nothing in the code asks for: what backward makes like it
    is rounded to whole numbers. More gradients that are not zero show more, then inputs that need no broadcasting,
    then inputs at which more of the code runs. Without broadcasting, inputs have more dimensions: with fewer, a sum
    that backward leaves to autograd would not show. Of two sizes, the first tried stays unless the other is more
    likely meant.
    """
    if best is None:
        return other
    one, two = ((not each.is_doubtful, each.tried.repeats, not each.proposal.departs) for each in (best, other))
    if one != two:
        return other if two > one else best
    if best.is_idle != other.is_idle:
        return other if best.is_idle and _is_as_large(other.inputs, best.inputs) else best
    if (other.proposal.base, other.table) != (best.proposal.base, best.table):
        return best
    if other.proposal.guesses != best.proposal.guesses:
        return other if other.proposal.guesses < best.proposal.guesses else best
    if other.tried.score != best.tried.score:
        return other if other.tried.score > best.tried.score else best
    if other.tried.fits != best.tried.fits:
        return other if other.tried.fits and _is_as_large(other.inputs, best.inputs) else best
    return other if other.tried.never_ran < best.tried.never_ran else best


def tensors_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the descriptions of tensors that an input is or lists."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _dimensions(inputs: Inputs) -> dict[str, int]:
    """Return the number of dimensions of each input with a shape, the largest of those in a list."""
    shapes = {name: [each["shape"] for each in tensors_in(value) if "shape" in each] for name, value in inputs.items()}
    return {name: max(map(len, found)) for name, found in shapes.items() if found}


def _is_as_large(one: Inputs, two: Inputs) -> bool:
    """Return True if every input of `one` has at least as many dimensions as that of `two`."""
    found = _dimensions(one)
    return all(found.get(name, 0) >= dimensions for name, dimensions in _dimensions(two).items())
