"""One try: the inputs are made, and forward and backward run, in a worker."""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import gradverify
from gradverify.author.inferring.model import Question
from gradverify.case import Case
from gradverify.checks.contract.nodes import custom_nodes, recorded_exchanges
from gradverify.checks.contract.returned import is_summed
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Rejected, record, vjp
from gradverify.deadline import Deadline
from gradverify.errors import EvaluationError, GradverifyError
from gradverify.result import Side
from gradverify.run.arguments import seed_everything
from gradverify.run.build import build
from gradverify.run.exercised import not_exercised
from gradverify.run.load import LoadError
from gradverify.spec.inputs import read_input
from gradverify.spec.readers import BadValueError

_MOST_OUTPUTS = 100_000  # entries
_SEEDS = range(6)  # at which inputs have to run
_ROUNDING = 0.01  # relative difference of two calls in low precision
_FORWARD, _BACKWARD, _RETURNED = 1, 2, 3  # how far a call came
# What autograd says of a gradient that does not fit its input.
_REFUSED = re.compile(r"gradient at index (\d+) - got \[([\d, ]*)\] but expected shape compatible with \[([\d, ]*)\]")
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"
_TELLING = 3  # words that say what is wrong without the line that raised
_OTHERS = tuple(f"{each.__path__[0]}{os.sep}" for each in (gradverify, torch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A gradient that autograd refuses for its shape."""

    number: int  # of the tensor, among those that the function is called with
    shape: tuple[int, ...]  # of the tensor
    of_gradient: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a try."""

    ran: bool  # forward and backward ran, and their numbers are finite
    gradients: int = 0  # inputs that get one
    nonzero: frozenset[int] = frozenset()  # numbers of the inputs whose gradient is not zero everywhere
    without: int = 0  # tensors of numbers that get no gradient
    fits: bool = True  # False if autograd sums a gradient that has more entries than its input
    broadcast: bool = False  # an output has more dimensions than every input
    is_identity: bool = False  # an output is an input
    repeats: bool = True  # False if a second call with the same inputs and seed has other results
    never_ran: int = 0  # blocks of forward and backward that did not run
    raised: bool = False  # True if forward or backward did
    finite: bool = True  # False if both ran, but not all numbers are finite
    rejected: bool = False  # autograd refuses what backward returned
    refused: Refused | None = None  # if that was for its shape
    why: str = ""  # what was wrong, as a predicate
    reached: tuple[int, int] = (0, 0)  # how far the call came, and the line that raised
    results: tuple[torch.Tensor, ...] = ()  # outputs, gradients and inputs, until the call is repeated in other memory

    @property
    def score(self) -> int:
        """The higher, the more the inputs show."""
        return len(self.nonzero) - self.without

    @property
    def shows_all(self) -> bool:
        """True if every tensor of numbers gets a gradient of its shape, and all of the code ran."""
        return not self.without and self.fits and not self.never_ran

    @property
    def by_numbers(self) -> bool:
        """True if other numbers may do better."""
        return self.raised or not self.finite

    @property
    def has_zeros(self) -> bool:
        """True if a gradient is zero everywhere."""
        return len(self.nonzero) < self.gradients


def attempt(
    question: Question, function: Any, inputs: Mapping[str, Any], dims: Mapping[str, int], dtype: str, limit: Deadline
) -> Tried:
    """Return what comes of a call of the function at these inputs, the same at other numbers. Raises OutOfTime.

    What runs at one draw only is not legal: boundaries of random bits may happen to be sorted. The call at the first
    draw is repeated, since one that reads past the end of an input returns whatever is there.
    """
    try:
        case = _case(question, inputs, dims, dtype)
    except BadValueError as error:
        return Tried(ran=False, why=f"gradverify refused: {error}")
    nonzero: frozenset[int] = frozenset()
    repeats = True
    for seed in _SEEDS:
        found = _called(replace(case, seed=seed), function, limit)
        if found.results and seed == _SEEDS[0]:
            repeats = _are_close(found.results, _called(replace(case, seed=seed), function, limit).results)
        if not found.ran:
            return replace(found, repeats=repeats, results=())
        nonzero |= found.nonzero
    return replace(found, nonzero=nonzero, repeats=repeats, never_ran=_never_ran(case, function), results=())


def _are_close(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """True if tensors differ by no more than rounding, which sums on a GPU do from call to call."""
    try:
        return len(some) == len(others) and all(
            one.shape == other.shape and torch.allclose(one, other, rtol=_ROUNDING, equal_nan=True)
            for one, other in zip(some, others, strict=True)
        )
    except RuntimeError:  # for sparse tensors and others that torch does not compare
        return True


def _called(case: Case, function: Any, limit: Deadline) -> Tried:
    try:
        return _differentiated(replace(_problem(case, function), deadline=limit), function)
    except KeyboardInterrupt:
        raise
    except EvaluationError as error:
        return _raised(error.stage, error.original)
    except (GradverifyError, LoadError) as error:
        return Tried(ran=False, why=f"raised {_text(error)}")
    except BaseException as error:
        return Tried(ran=False, why=f"raised {_text(error)}")


def _raised(stage: str, error: BaseException) -> Tried:
    part = _BACKWARD if stage == "backward" else _FORWARD
    line = next((line for _, line in _user_lines(error)), 0)
    return Tried(ran=False, raised=True, why=f"{stage} raised {_text(error)}", reached=(part, line))


def _problem(case: Case, function: Any) -> Problem:
    seed_everything(case.draw_key, case.seed)
    return build(case, function)


def _never_ran(case: Case, function: Any) -> int:
    """Return how many blocks of a function that ran in time did not run; without a limit, past which none is found."""
    found = not_exercised(_problem(case, function), function, case.seed)
    return sum(each.never is Side.RUN for each in found)


def _case(question: Question, inputs: Mapping[str, Any], dims: Mapping[str, int], dtype: str) -> Case:
    read = {name: read_input(value, Path.cwd(), dims) for name, value in inputs.items()}
    return Case(
        id=question.draw_key,
        draw_key=question.draw_key,
        spec="",
        line=0,
        target=question.target,
        inputs=read,
        dtype=dtype,
        dims=dims,
    )


def _differentiated(problem: Problem, function: Any) -> Tried:
    if not problem.primals:
        return Tried(ran=False, why="has no tensor of numbers among these inputs")
    tape = record(problem)
    outputs = [output.tensor for output in tape.outputs]
    if not any(output.requires_grad for output in outputs):
        return Tried(ran=False, why="returned no tensor with a gradient")
    if isinstance(function, type) and issubclass(function, torch.autograd.Function) and not custom_nodes(tape):
        return Tried(ran=False, why="returned tensors that autograd does not differentiate by its backward")
    if not 0 < sum(output.numel() for output in outputs) <= _MOST_OUTPUTS:
        return Tried(ran=False, why="returned no entries, or too many")
    broadcast = max(output.dim() for output in outputs) > max(each.tensor.dim() for each in problem.primals)
    with torch.no_grad(), recorded_exchanges(custom_nodes(tape)) as exchanges:
        try:
            found = vjp(problem, tape, [torch.randn_like(output) for output in outputs])
        except Rejected as error:
            why = f"{error.stage} raised {_text(error.original)}"
            return Tried(
                ran=False,
                broadcast=broadcast,
                rejected=True,
                refused=_refused(str(error.original)),
                why=why,
                results=_detached(outputs, tape.leaves),
            )
    gradients = [each for each in found if each is not None]
    if not gradients:
        return Tried(ran=False, why="returned no gradient")
    finite = all(bool(each.isfinite().all()) for each in (*outputs, *gradients))
    return Tried(
        ran=finite,
        gradients=len(gradients),
        nonzero=frozenset(number for number, each in enumerate(found) if each is not None and bool(each.any())),
        without=len(found) - len(gradients),
        fits=not any(map(is_summed, exchanges)),
        broadcast=broadcast,
        is_identity=any(torch.equal(output, each.tensor) for output in outputs for each in problem.primals),
        finite=finite,
        why="" if finite else "returned numbers that are not finite",
        reached=(_RETURNED, 0),
        results=_detached(outputs, gradients, tape.leaves) if finite else (),
    )


def _detached(*tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(each.detach() for some in tensors for each in some)


def _refused(message: str) -> Refused | None:
    found = _REFUSED.search(message)
    if found is None:
        return None
    got, expected = (tuple(map(int, re.findall(r"\d+", sizes))) for sizes in found.groups()[1:])
    return Refused(number=int(found[1]), shape=expected, of_gradient=got)


def _user_lines(error: BaseException) -> list[tuple[str, int]]:
    """Return the files and lines that an exception came through, without gradverify and torch, the outermost first."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return [(file, line) for file, line in places if not file.startswith(_OTHERS)]


def _is_of_python(file: str) -> bool:
    return file.startswith("<") or (file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file)


def _text(error: BaseException) -> str:
    """Return the first line of an exception in quotes, or its type first where the text alone does not say what it is.

    That is a single word, the key of a KeyError, or how the process was to exit. An assertion without a text is shown,
    and after less than three words stands the line that raised.
    """
    try:
        lines = _COLOURS.sub("", str(error)).strip().splitlines()
    except Exception:
        lines = []
    first = lines[0].strip() if lines else ""
    short = first if len(first) <= 120 else f"{first[:120]} …"
    places = [(file, line) for file, line in _user_lines(error) if not _is_of_python(file)]
    where = f" ({Path(places[-1][0]).name}:{places[-1][1]})" if places and len(first.split()) < _TELLING else ""
    if len(first.split()) > 1 and isinstance(error, Exception) and not isinstance(error, KeyError):
        return f"'{short}'{where}"
    if isinstance(error, AssertionError) and not short and places:
        return f"AssertionError: `{linecache.getline(*places[-1]).strip()}`"
    kind = type(error).__name__
    return f"{kind}: {short}{where}" if short else f"{kind}{where}"
