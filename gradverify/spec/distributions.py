"""The keys of an input that say how its values are drawn, one reader for each."""

from __future__ import annotations

import math
from typing import Any

from gradverify.case import Bernoulli, Integers, Linspace, Normal, Permutation, Uniform
from gradverify.spec.readers import bad, number, pair_of, signed
from gradverify.spec.wording import shown


def normal(value: Any) -> Normal:
    """Read [mean, std]."""
    mean, std = pair_of(number, "[mean, standard deviation]")(value)
    if std < 0:
        raise bad(f"the standard deviation must not be negative, found {shown(std)}")
    return Normal(mean=mean, std=std)


def uniform(value: Any) -> Uniform:
    """Read [low, high]."""
    low, high = pair_of(number, "[low, high]")(value)
    if not low < high:
        raise bad(f"low must be less than high, found [{shown(low)}, {shown(high)}]")
    if math.isinf(high - low):
        raise bad("the interval is wider than a 64-bit float holds")
    return Uniform(low=low, high=high)


def integers(value: Any) -> Integers:
    """Read [low, high], the upper end exclusive."""
    low, high = pair_of(signed, "[low, high]")(value)
    if not low < high:
        raise bad(f"low must be less than high, found [{low}, {high}]", "high itself is never drawn")
    return Integers(low=low, high=high)


def bernoulli(value: Any) -> Bernoulli:
    """Read the probability of a one."""
    p = number(value)
    if not 0 <= p <= 1:
        raise bad(f"expected a probability from 0 to 1, found {value}")
    return Bernoulli(p=p)


def linspace(value: Any) -> Linspace:
    """Read [start, end], both inclusive."""
    start, end = pair_of(number, "[start, end]")(value)
    return Linspace(start=start, end=end)


def permutation(value: Any) -> Permutation:
    """Read `true`: a permutation has nothing else to say."""
    if value is not True:
        raise bad("expected true", "leave the key out for another distribution")
    return Permutation()
