"""A spec as it was read: frozen, checked, and with the places that later errors need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradverify.case import Expectation, ExploreRules, Input, Target, Tolerances, TorchGradcheck
from gradverify.spec.node import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCase:
    """One case of a document, before devices, dtypes and samples multiply it."""

    name: str  # unique in its file
    line: int  # of its key, or of the document
    draft: str  # why it is not run yet; "" for a case that is run
    target: Target
    surrogate: Target | None
    reference: Target | None
    init: Mapping[str, Any] | None
    inputs: Mapping[str, Input]
    outputs: tuple[int, ...] | None
    stochastic: bool
    checks: tuple[str, ...] | None  # None: left to the default, as are the next two
    dtypes: tuple[str, ...] | None
    devices: tuple[str, ...] | None
    samples: int
    seed: int | None  # None: 0, and draws depend on the file's name
    timeout: float
    tolerances: Mapping[str, Tolerances]  # of every known check
    torch_gradcheck: TorchGradcheck
    tf32: bool
    interpret: bool
    dims: Mapping[str, int]  # named sizes
    explore: ExploreRules
    expect: Expectation  # `verdict` is of the case only where `checks` is empty
    places: Mapping[str, Place]  # of keys: `init`, `init.NAME`, `inputs.NAME`, `inputs.NAME.args.NAME`, …


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One YAML document."""

    file: str  # path as it was given
    name: str  # first part of its cases' ids
    stem: str  # the file's name in the keys of draws
    document: int  # number in its file, from 1
    cases: tuple[SpecCase, ...]
