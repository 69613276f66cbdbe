"""The input of an excuse."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.context import JudgingContext

COLUMNS_EXAMINED = 96  # columns, or column groups, that an excuse examines


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcuseContext:
    """Some column groups with mismatching entries."""

    context: JudgingContext
    backward: Backward
    chosen: Tensor  # (C,) the column groups that the verdicts are on
    seed: int
