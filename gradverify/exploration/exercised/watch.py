"""Run code and watch it."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType
from typing import TypeVar

import torch

from gradverify.exploration.exercised.conditions import ConditionRecorder
from gradverify.exploration.exercised.lines import recorded_lines
from gradverify.exploration.exercised.user_code import code_of, files_of
from gradverify.exploration.exercised.watched import Watched

T = TypeVar("T")


def watch(run: Callable[[], T], functions: Sequence[FunctionType | CodeType]) -> tuple[T, Watched]:
    """Return the result of `run()` and what was seen of the code in the files, folders and packages of `functions`.

    Raises what `run` raises.
    """
    codes = [code for code in map(code_of, functions) if code is not None]
    for code in codes:
        linecache.checkcache(code.co_filename)  # the file may have been edited and loaded again
    with _without_compiler(), recorded_lines(files_of(codes)) as lines, ConditionRecorder(lines) as recorder:
        value = run()
    seen = Watched(
        conditions=recorder.conditions(),
        ran=frozenset(lines.lines),
        operators=recorder.operators(),
    )
    return value, seen


def _without_compiler() -> AbstractContextManager[object]:
    """Run compiled functions as plain code: torch's compiler would compile the dispatch mode with them, in seconds."""
    set_stance = getattr(torch.compiler, "set_stance", None)  # torch 2.6 and newer
    if set_stance is None or "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = set_stance("force_eager")
    return stance
