"""The keys that tell one form of input from another."""

from __future__ import annotations

DISTRIBUTIONS = ("normal", "uniform", "integers", "bernoulli", "linspace", "permutation")
OTHER_SOURCES = ("values", "file", "factory")
SIZED = ("shape", "size")  # keys whose lists may hold expressions of `dims`
ARGUMENT_FORMS = ("dtype", "size", "tuple", "device")  # each alone in its mapping
