"""The function under test and the point at which its gradient is verified."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gradverify.arithmetic.narrowing import casts_left_out
from gradverify.core.model.coordinates import (
    as_plain,
    copied,
    in_class_of,
    is_special,
    plain_point,
    readable,
    why_unreadable,
)
from gradverify.core.model.generators import seed_everywhere
from gradverify.deadline import Deadline, require_time
from gradverify.errors import USER_ERRORS, EvaluationError
from gradverify.nested import Named, map_tensors, named_tensors

NARROW = (torch.bfloat16, torch.float16, torch.float32)  # dtypes with fewer digits than float64, coarsest first
Projection = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Primal:
    """One differentiated input."""

    name: str  # as in the user's code: x, xs[1], weight
    tensor: Tensor  # the point, detached, in the memory layout that forward gets
    like: Tensor | None = None  # the original input, if forward needs its class or its attributes
    project: Projection | None = None  # applied before the function, so that perturbed inputs satisfy a constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One argument that is not differentiated: a number or a tensor."""

    name: str  # as in the user's code: clip_val, target
    value: float | Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One tensor that is not differentiated, and every argument that it is."""

    names: tuple[str, ...]
    tensor: Tensor


@dataclass(slots=True, kw_only=True)
class Fixed:
    """The tensors that are not differentiated; mutable. At every call, forward gets a copy of each that is not held.

    A tensor given as two arguments is one tensor in every call too.
    """

    originals: tuple[Given, ...] = ()
    held: dict[int, Tensor] = field(default_factory=dict)  # passed instead of copies, by the id of the original


@dataclass(slots=True, kw_only=True)
class Meter:
    """Counts of calls of user code; mutable."""

    forward: int = 0
    backward: int = 0

    @property
    def calls(self) -> int:
        """All calls, of forward and of backward."""
        return self.forward + self.backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A function of its differentiated inputs only; all other arguments are fixed."""

    name: str
    function: Callable[..., Any]  # primal tensors in order -> tensor, or nested tuple, list or dict of them
    primals: tuple[Primal, ...]
    bound: tuple[Bound, ...] = ()  # the fixed arguments, for diagnoses that name them
    fixed: Fixed = field(default_factory=Fixed)
    outputs: tuple[int, ...] | None = None  # indices of the outputs verified, among all output tensors; None: all
    seed: int | None = None  # seed set before every call of a random forward
    is_widened: bool = False  # True if casts of float64 to a narrower dtype, in forward and backward, are left out
    fresh_graphs: bool = False  # True if a recorded graph must serve one vjp only
    accumulates: bool = False  # True if backward works only through .backward(), which fills the leaves' .grad
    order: int = 1  # 2 if `function` is itself a vjp
    cotangents: int = 0  # number of primals, the last ones, that are cotangents of that vjp
    finer: Callable[..., Any] | None = None  # `function` with its low-precision fixed tensors in float64, if any
    reference: Problem | None = None  # plain code for the same outputs, whose gradient is held against this one's
    on_cpu: Problem | None = None  # the same function at the same numbers on the CPU, if it is on another device
    note: str = ""  # how the point differs from what the user gave, for the report
    output: str = "output"  # name of a single output; "" if the function names its outputs itself
    meter: Meter = field(default_factory=Meter)
    deadline: Deadline | None = None  # user code is not called after it; None for no limit

    @property
    def eps(self) -> float:
        """Largest eps of the primals' dtypes."""
        return max(torch.finfo(primal.tensor.dtype).eps for primal in self.primals)


def bind(
    function: Callable[..., Any],
    args: Sequence[Any],
    *,
    names: Sequence[str],
    kwargs: Mapping[str, Any] | None = None,
    projections: Mapping[str, Projection] | None = None,
    outputs: tuple[int, ...] | None = None,
    seed: int | None = None,
    name: str = "",
) -> Problem:
    """Return the problem of differentiating `function(*args, **kwargs)` by its tensors that require grad.

    `names` are the names of the positional arguments. Tensors inside nested lists, tuples, dicts and dataclasses are
    found too. All other tensors are copied at every call, so that forward may overwrite them.
    """
    keywords = dict(kwargs or {})
    slots = [*zip(names, args, strict=True), *keywords.items()]
    tensors = [entry for slot, value in slots for entry in named_tensors(slot, value)]
    project = projections or {}
    primals = tuple(_primal(entry, project.get(entry.name)) for entry in tensors if entry.tensor.requires_grad)
    values = [value for _, value in slots]
    plain = not keywords and all(isinstance(value, Tensor) and value.requires_grad for value in values)
    bound = tuple(entry for slot, value in slots for entry in _bound(slot, value))
    fixed = Fixed(originals=_given([entry for entry in tensors if not entry.tensor.requires_grad]))

    def with_arguments(given: Sequence[Any]) -> Callable[..., Any]:
        def call(*tensors: Tensor) -> Any:
            replacements = iter(tensors)
            copies = dict(fixed.held)
            filled = [map_tensors(value, lambda tensor: _argument_for(tensor, replacements, copies)) for value in given]
            return function(*filled[: len(args)], **dict(zip(keywords, filled[len(args) :], strict=True)))

        return call

    called = name or _name_of(function)
    function = _late_bound(function)
    of_primals = function if plain else with_arguments(values)  # the arguments are the primals, in order
    coarse = any(isinstance(entry.value, Tensor) and entry.value.dtype in NARROW for entry in bound)
    wide: dict[int, Tensor] = {}
    in_float64 = [map_tensors(value, lambda tensor: _in_float64(tensor, wide)) for value in values] if coarse else []
    return Problem(
        name=called,
        function=of_primals,
        primals=primals,
        bound=bound,
        fixed=fixed,
        outputs=outputs,
        seed=seed,
        finer=with_arguments(in_float64) if coarse else None,
    )


def call(problem: Problem, tensors: Sequence[Tensor]) -> tuple[Named, ...]:
    """Run the forward once on `tensors`, one per primal, and return the verified floating-point and complex outputs.

    Raises EvaluationError if user code raises, and OutOfTime if the deadline has passed.
    """
    metered(problem).forward += problem.order == 1  # a vjp calls its forward by this function, which counts it
    projected = [
        tensor if primal.project is None else primal.project(tensor)
        for primal, tensor in zip(problem.primals, tensors, strict=True)
    ]
    if problem.seed is not None:
        seed_everywhere(problem.seed)
    try:
        given = [
            tensor if primal.like is None else in_class_of(primal.like, tensor)
            for primal, tensor in zip(problem.primals, projected, strict=True)
        ]
        with casts_left_out(problem.is_widened):
            raw = problem.function(*given)
    except EvaluationError:
        raise
    except USER_ERRORS as error:
        raise EvaluationError("forward", error) from error
    return _selected(problem, named_tensors(problem.output, raw))


def copies_of_fixed(problem: Problem) -> tuple[Tensor, ...]:
    """Return copies of the tensors that are not differentiated, as forward gets them."""
    return tuple(_copy(entry.tensor) for entry in problem.fixed.originals)


@contextmanager
def holding(problem: Problem, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Pass these tensors to forward, instead of new copies of `problem.fixed.originals`."""
    pairs = zip(problem.fixed.originals, tensors, strict=True)
    problem.fixed.held.update({id(entry.tensor): tensor for entry, tensor in pairs})
    try:
        yield
    finally:
        problem.fixed.held.clear()


def metered(problem: Problem) -> Meter:
    """Return the meter, for the caller to count its next call; raises OutOfTime if the deadline has passed."""
    require_time(problem.deadline)
    return problem.meter


def gpus_of(problem: Problem) -> tuple[int, ...]:
    """Return the sorted indices of the CUDA devices that hold primals."""
    return tuple(sorted({primal.tensor.device.index or 0 for primal in problem.primals if primal.tensor.is_cuda}))


def fresh(tensor: Tensor) -> Tensor:
    """Return a detached copy with the same strides, including stride 0 of expanded dimensions.

    The copy is contiguous if entries overlap although no dimension is expanded.
    """
    detached = tensor.detach()
    if detached.layout is not torch.strided or detached.is_contiguous():
        return detached.clone()
    if overlaps(detached) and 0 not in detached.stride():
        return detached.clone(memory_format=torch.contiguous_format)
    copy = laid_out_like(detached)
    distinct = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in detached.stride())
    copy[distinct].copy_(detached[distinct])
    return copy


def laid_out_like(tensor: Tensor) -> Tensor:
    """Return a tensor with the same strides, to be written to; gaps between its entries hold NaN, and -1 for integers.

    A function that reads them by mistake then does not depend on what the memory held before.
    """
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    made.untyped_storage().fill_(0xFF)  # type: ignore[attr-defined]
    return made


def overlaps(tensor: Tensor) -> bool:
    """Return True if two entries of a tensor may share an address."""
    span = 0  # largest offset within the dimensions so far
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= span:
            return True
        span += (size - 1) * stride
    return False


def _primal(entry: Named, project: Projection | None) -> Primal:
    like = entry.tensor if is_special(entry.tensor) else None
    return Primal(name=entry.name, tensor=plain_point(entry.tensor), like=like, project=project)


def _bound(name: str, value: Any) -> list[Bound]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [Bound(name=name, value=float(value))] if abs(value) <= sys.float_info.max else []
    tensors = (entry for entry in named_tensors(name, value) if not entry.tensor.requires_grad)
    return [Bound(name=each.name, value=readable(each.tensor)) for each in tensors]


def _given(entries: Sequence[Named]) -> tuple[Given, ...]:
    tensors = {id(entry.tensor): entry.tensor for entry in entries}
    return tuple(
        Given(names=tuple(entry.name for entry in entries if entry.tensor is tensor), tensor=tensor)
        for tensor in tensors.values()
    )


def _argument_for(tensor: Tensor, replacements: Iterator[Tensor], copies: dict[int, Tensor]) -> Tensor:
    """Return what forward gets for a tensor; `copies` are those of this call, by the id of the original."""
    if tensor.requires_grad:
        return next(replacements)
    if id(tensor) not in copies:
        copies[id(tensor)] = tensor.clone() if torch.compiler.is_compiling() else _copy(tensor)
    return copies[id(tensor)]


def _copy(tensor: Tensor) -> Tensor:
    return copied(tensor) if is_special(tensor) or why_unreadable(tensor) else fresh(tensor)


def _in_float64(tensor: Tensor, done: dict[int, Tensor]) -> Tensor:
    """Return a tensor in float64 if it has fewer digits, the same one for the same tensor; `done` are those so far."""
    if tensor.requires_grad or tensor.dtype not in NARROW or tensor.is_mkldnn or is_special(tensor):
        return tensor
    if id(tensor) not in done:
        done[id(tensor)] = tensor.double()
    return done[id(tensor)]


def _selected(problem: Problem, outputs: list[Named]) -> tuple[Named, ...]:
    if problem.outputs is not None:
        missing = [number for number in problem.outputs if number >= len(outputs)]
        if missing:
            raise EvaluationError(
                "forward", IndexError(f"outputs: {missing} asked for, but forward returns {len(outputs)} tensors")
            )
        outputs = [outputs[number] for number in problem.outputs]
    floating = [output for output in outputs if output.tensor.is_floating_point() or output.tensor.is_complex()]
    return tuple([Named(name=output.name, tensor=as_plain(output.tensor)) for output in floating])


def _late_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that looks up a Function's `apply` each time, so that it can be patched; see `interception`."""
    cls = getattr(function, "__self__", None)
    if isinstance(cls, type) and issubclass(cls, torch.autograd.Function) and function == cls.apply:
        return lambda *args, **kwargs: cls.apply(*args, **kwargs)  # type: ignore[no-untyped-call]
    return function


def _name_of(function: Callable[..., Any]) -> str:
    cls = getattr(function, "__self__", None)  # the class of a bound classmethod such as Function.apply
    named = cls if isinstance(cls, type) else function
    return str(getattr(named, "__name__", type(function).__name__))
