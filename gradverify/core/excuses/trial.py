"""What an excuse is given: the entries that are accused, and whoever can be asked about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gradverify.core.function.analytic import Reverse
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Some moves with entries that are accused."""

    at: Bench
    backward: Reverse
    chosen: Tensor  # (C,) the moves that the verdicts are on
    seed: int


Excuse = Callable[[Trial, Judged], Judged]  # the verdicts (C, m) before and after; only what is accused changes
