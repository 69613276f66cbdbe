"""The Python interface: verify a gradient where you are, without a spec."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradverify.case import Settings, TargetKind, Tolerances, TorchGradcheck, default_checks
from gradverify.checks.parity import check as parity
from gradverify.checks.registry import CHECKS
from gradverify.core.model.generators import restored_generators
from gradverify.core.model.problem import Problem, bind, gpus_of
from gradverify.deadline import Deadline, deadline_in
from gradverify.errors import InputError
from gradverify.paths import shown_from_here
from gradverify.report.notebook import case_html, case_text
from gradverify.result import CaseResult, Verdict, worst
from gradverify.run.call import Call, arrange
from gradverify.run.constant_parameters import drawn_around, forward_of
from gradverify.run.devices import tf32_switched
from gradverify.run.exercised import not_exercised
from gradverify.run.module import as_function, has_plain_parameters, own_parameters
from gradverify.run.on_cpu import moved_to_cpu
from gradverify.run.reference import with_parameters, with_reference
from gradverify.run.run_checks import run_checks
from gradverify.run.second_opinion import with_second_opinion
from gradverify.run.signature import forward_parameters
from gradverify.run.source import source_in_graph, source_of
from gradverify.run.unobserved import unobserved
from gradverify.run.usage.measure import measure

_WIDEST = 100  # columns of a printed result, at most; fewer where the terminal has fewer


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Verified(CaseResult):
    """A result that prints as the screen shows it, and in a notebook as the page does."""

    def __str__(self) -> str:
        return case_text(self, printed_width())

    def _repr_html_(self) -> str:
        return case_html(self)


class GradientMismatch(AssertionError):
    """A gradient is wrong, or could not be shown to be right; `result` holds every element."""

    def __init__(self, result: CaseResult, text: str) -> None:
        self.result = result
        super().__init__(text)


def verify(
    function: Callable[..., Any] | type[torch.autograd.Function],
    inputs: Sequence[Any],
    *,
    checks: Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
    torch_gradcheck: str = "small",
    reference: Callable[..., Any] | type[torch.autograd.Function] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> CaseResult:
    """Judge the gradient of `function` at `inputs`, entry by entry, with finite differences that carry error bars.

    `function` is a `torch.autograd.Function` class or any callable. `inputs` are its positional arguments, of any
    shapes: tensors that require grad are differentiated, everything else is passed on, and none of them is touched.
    `kwargs` are forward's keyword arguments, treated in the same way; tensors in them are called by their keyword.
    `Function.apply` takes no keyword arguments: those of a Function class are passed by their position in forward.
    Of a `torch.nn.Module`, the parameters that require grad are differentiated too, by their own names, unless it is a
    script or has parameters that are not there yet. Where all entries of one have the same value, as a weight of ones
    has, it is judged at random values around that one, since a gradient that leaves it out is right there, if forward
    accepts these; `note` of the result says so. The module itself is never changed.

    `reference` is plain, differentiable code for the same outputs. It is called with the same arguments, in float64 if
    it is compared with; of a module, a reference that is a module has parameters of the same names, and any other takes
    them as keyword arguments. The check "reference" then judges outputs and gradients in the dtype of the inputs.

    `checks` are names such as "gradcheck" and "contract"; the default is that of the command line: with a reference,
    "reference" and "contract", and "gradcheck" too if all inputs are in float64 or complex128. `rtol` is relative
    to each entry and defaults to 1e-7 in float64; `atol` is in the gradient's own units and defaults to rounding.
    `names` are what the inputs are called in the result, by default what forward calls them. `timeout` is in seconds
    and shared among the checks: one whose share has passed ends before its next call of forward or backward, with a
    finding GV904 that says what was compared by then. A single call of forward that hangs is not interrupted.

    The result's `measured` has the bytes kept for backward and the peak of forward and backward, beside those of the
    reference or plain torch. On CUDA, torch's peak memory statistics are reset for it. `uncovered` lists the lines of
    forward and backward that these inputs do not reach, and the conditions of which they take only one side.

    The same numbers come out as from a spec with these inputs. What user code raises becomes an `error` finding. The
    result is true if every check passed or was skipped, so that `assert verify(f, (x,))` tests a gradient. `print`
    shows it as the screen does, a notebook as a table with heat maps.

    Raises ValueError for a name in `checks` that no check has, for tolerances below zero, a seed that is no whole
    number from zero on, a timeout that is not above zero, a wrong number of `names`, or an input that is also a
    parameter of a module among the inputs: verify a module that applies the function. TypeError for what cannot be
    called, inputs that are a tensor or a mapping rather than a tuple, `names` that are one text, or `kwargs` that
    cannot be passed.
    """
    started = time.perf_counter()
    require(function, inputs, checks)
    settings = _settings(rtol, atol, seed, torch_gradcheck)
    deadline = _deadline(timeout)
    problem = _problem(function, tuple(inputs), names, _keywords(kwargs), reference, seed)
    problem = replace(problem, deadline=deadline)
    if checks is not None and parity.NAME in checks:
        problem = replace(problem, on_cpu=_on_cpu(function, tuple(inputs), names, _keywords(kwargs), seed))
    dtype = _common(str(primal.tensor.dtype).removeprefix("torch.") for primal in problem.primals)
    asked = default_checks(has_reference=reference is not None, dtype=dtype) if checks is None else tuple(checks)
    with restored_generators(gpus_of(problem)), tf32_switched(on=settings.tf32), shown_from_here(), unobserved():
        results = run_checks(problem, asked, dict.fromkeys(asked, settings))
        measured = measure(problem)
        results = with_second_opinion(problem, results)
        uncovered = not_exercised(problem, function, settings.seed)
        source = source_of(function) or source_in_graph(problem)
    verdict = worst(result.verdict for result in results)
    return Verified(
        id=problem.name,
        spec="",
        line=0,
        function=problem.name,
        source=source,
        device=_common(str(primal.tensor.device) for primal in problem.primals),
        dtype=dtype,
        sample=0,
        seed=seed,
        verdict=verdict,
        expected=Verdict.PASS,
        as_expected=verdict in (Verdict.PASS, Verdict.SKIP),
        seconds=time.perf_counter() - started,
        checks=results,
        measured=measured,
        uncovered=uncovered,
        note=problem.note,
    )


def assert_gradients(
    function: Callable[..., Any] | type[torch.autograd.Function], inputs: Sequence[Any], **options: Any
) -> None:
    """Raise GradientMismatch with the table of elements unless every check passes or is skipped.

    Takes what `verify` takes.
    """
    __tracebackhide__ = True  # pytest then ends with the line that called this
    result = verify(function, inputs, **options)
    if not result:
        raise GradientMismatch(result, f"{result.function}: {result.verdict.value}\n\n{result}")


def assert_matches(
    function: Callable[..., Any] | type[torch.autograd.Function],
    reference: Callable[..., Any] | type[torch.autograd.Function],
    inputs: Sequence[Any],
    **options: Any,
) -> None:
    """Raise GradientMismatch with the table of elements unless outputs and gradients are those of `reference`.

    Takes what `verify` takes. Of the checks, only "reference" runs unless others are asked for. Raises TypeError for a
    reference that cannot be called.
    """
    __tracebackhide__ = True
    if reference is None:  # which `verify` takes for torch's own derivative of the forward
        raise TypeError("reference: expected a callable or a module, found None")
    assert_gradients(function, inputs, **{"checks": ("reference",), **options, "reference": reference})


def require(function: Any, inputs: Any, checks: Any) -> None:
    """Raise ValueError or TypeError for a function, inputs or checks that cannot be verified."""
    known = [check.name for check in CHECKS]
    several = isinstance(checks, Collection) and not isinstance(checks, str)
    if checks is not None and (not several or not checks or any(name not in known for name in checks)):
        raise ValueError(f"checks: expected a tuple of {', '.join(known)}; found {checks!r}")
    if isinstance(inputs, torch.Tensor):
        raise TypeError("inputs: expected a tuple of forward's arguments, found a tensor; write (x,)")
    if isinstance(inputs, str | Mapping) or not isinstance(inputs, Iterable):
        raise TypeError(f"inputs: expected a tuple of forward's arguments, found {type(inputs).__name__}")
    if not callable(function):
        raise TypeError(f"function: expected a Function class or a callable, found {type(function).__name__}")
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        found = f"the class {function.__name__}; make one, {function.__name__}(…)"
        raise TypeError(f"function: expected a Function class or a callable, found {found}")


def names_of(function: Any, inputs: tuple[Any, ...], names: Sequence[str] | None) -> tuple[str, ...]:
    """Return what the inputs are called, by default what forward calls them; raises TypeError and ValueError."""
    if isinstance(names, str):
        raise TypeError(f"names: expected a tuple of names, found text {names!r}")
    called = _names(function, len(inputs)) if names is None else tuple(names)
    if len(called) != len(inputs):
        raise ValueError(f"names: expected one per input, {len(inputs)} in all, found {len(called)}")
    return called


def printed_width() -> int:
    """Return the columns of a printed result: those of the terminal, at most 100."""
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 1)).columns)


def common_dtype(tensors: Iterable[torch.Tensor]) -> str:
    """Return the name of the dtype of most tensors, float64 if there are none."""
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    return max(dict.fromkeys(names), key=names.count, default="float64")


def _settings(rtol: float | None, atol: float | None, seed: int, torch_gradcheck: str) -> Settings:
    if isinstance(seed, bool) or not (isinstance(seed, int) and 0 <= seed < 2**63):
        raise ValueError(f"seed: expected a whole number from 0 to {2**63 - 1}, found {seed!r}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not (isinstance(value, int | float) and value >= 0):
            raise ValueError(f"{name}: expected a number that is not below zero, found {value!r}")
    if torch_gradcheck not in tuple(TorchGradcheck):
        raise ValueError(f"torch_gradcheck: expected {', '.join(TorchGradcheck)}; found {torch_gradcheck!r}")
    return Settings(
        tolerances=Tolerances(rtol=rtol, atol=atol),
        seed=seed,
        torch_gradcheck=TorchGradcheck(torch_gradcheck),
        tf32=bool(torch.backends.cuda.matmul.allow_tf32),
    )


def _deadline(timeout: float | None) -> Deadline | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not (isinstance(timeout, int | float) and timeout > 0):
        raise ValueError(f"timeout: expected a number of seconds above zero, found {timeout!r}")
    try:
        return deadline_in(float(timeout))
    except OverflowError:
        raise ValueError("timeout: expected a number of seconds above zero, found one that no float holds") from None


def _keywords(kwargs: Any) -> Mapping[str, Any]:
    if kwargs is None:
        return {}
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs: expected a mapping of forward's keyword arguments, found {type(kwargs).__name__}")
    wrong = next((key for key in kwargs if not isinstance(key, str)), None)
    if wrong is not None:
        raise TypeError(f"kwargs: expected names of keyword arguments, found {wrong!r}")
    return kwargs


def _problem(
    function: Callable[..., Any] | type[torch.autograd.Function],
    inputs: tuple[Any, ...],
    names: Sequence[str] | None,
    kwargs: Mapping[str, Any],
    reference: Callable[..., Any] | type[torch.autograd.Function] | None,
    seed: int,
) -> Problem:
    called = names_of(function, inputs, names)
    given = Call(names=called, args=inputs, kwargs=kwargs)
    applied, call, name, note = _applied(function, given, seed)
    _refuse_shared_parameters(call)
    problem = replace(bind(applied, call.args, names=call.names, kwargs=call.kwargs, name=name), note=note)
    if reference is None:
        return problem
    if not callable(reference) or (isinstance(reference, type) and issubclass(reference, torch.nn.Module)):
        raise TypeError(f"reference: expected a callable or a module, found {reference!r}")
    parameters = dict(zip(call.names[len(inputs) :], call.args[len(inputs) :], strict=True))
    try:
        return _with_reference(problem, reference, given, parameters if _is_module(function) else {}, seed)
    except InputError as error:
        raise TypeError(f"reference: {error}") from error


def _on_cpu(
    function: Any, inputs: tuple[Any, ...], names: Sequence[str] | None, kwargs: Mapping[str, Any], seed: int
) -> Problem:
    """Return the problem with its inputs and parameters on the CPU."""
    return _problem(moved_to_cpu(function), moved_to_cpu(inputs), names, moved_to_cpu(dict(kwargs)), None, seed)


def _applied(function: Any, given: Call, seed: int) -> tuple[Callable[..., Any], Call, str, str]:
    """Return a function as it is called, its call with a module's parameters after the inputs, its name, and the note.

    Parameters that hold one value are drawn around it, where forward accepts that.
    """
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        return function.apply, _by_position(function, given), function.__name__, ""
    if _is_module(function):
        parameters, note = drawn_around(own_parameters(function), forward_of(function, given), key="verify", seed=seed)
        applied, call = as_function(function, given, parameters)
        return applied, call, type(function).__name__, "; ".join(filter(None, (note, _left_out(given))))
    return function, given, "", ""


def _left_out(given: Call) -> str:
    """Return which inputs in floating point are not differentiated, "" if there are none."""
    named = [*zip(given.names, given.args, strict=True), *given.kwargs.items()]
    tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor) and value.is_floating_point()]
    names = [name for name, value in tensors if not value.requires_grad]
    return f"not differentiated, as they do not require grad: {', '.join(names)}" if names else ""


def _refuse_shared_parameters(call: Call) -> None:
    """Raise ValueError if an input is also a parameter of a module among the arguments, which would not see it move."""
    named = [*zip(call.names, call.args, strict=True), *call.kwargs.items()]
    for holder, value in named:
        module = getattr(value, "__self__", value)  # of a bound method
        parameters = module.parameters() if isinstance(module, torch.nn.Module) else ()
        of_module = {id(parameter) for parameter in parameters}
        for name, given in named:
            if isinstance(given, torch.Tensor) and given.requires_grad and id(given) in of_module:
                raise ValueError(
                    f"inputs: {name} is also a parameter of {holder}, which would not see its copies change;"
                    f" give verify a module that applies the function to {holder} and its parameters"
                )


def _with_reference(problem: Problem, reference: Any, given: Call, parameters: Mapping[str, Any], seed: int) -> Problem:
    """Return the problem with its reference; raises InputError if their parameters differ."""
    if _is_module(reference):
        applied, call = as_function(reference, given, own_parameters(reference))
        name, call = type(reference).__name__, with_parameters(call, len(given.args), parameters)
    else:
        applied, call, name, _ = _applied(reference, given, seed)
        call = replace(call, kwargs={**call.kwargs, **parameters})
    return with_reference(problem, applied, call, name=name or str(getattr(reference, "__name__", "the reference")))


def _is_module(function: Any) -> bool:
    return isinstance(function, torch.nn.Module) and has_plain_parameters(function)


def _by_position(function: type[torch.autograd.Function], call: Call) -> Call:
    """Return a call without keyword arguments: each stands at its place in forward. Raises TypeError."""
    if not call.kwargs:
        return call
    own = _names(function, len(call.args))
    twice = next((name for name in own if name in call.kwargs), None)
    if twice is not None:
        raise TypeError(f"kwargs: `{twice}` is among `inputs` already")
    try:
        whole = arrange(
            dict(zip(own, call.args, strict=True)) | dict(call.kwargs),
            forward_parameters(function),
            TargetKind.FUNCTION,
        )
    except InputError as error:
        raise TypeError(f"kwargs: {error}") from error
    return Call(names=(*call.names, *whole.names[len(call.args) :]), args=whole.args)


def _names(function: Any, count: int) -> tuple[str, ...]:
    """Return forward's own parameter names, with an index where one parameter takes several inputs."""
    found: list[str] = []
    for parameter in forward_parameters(_applied_class(function) or function) or ():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}[{number}]" for number in range(count - len(found))]
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            found.append(parameter.name)
    return tuple(found[:count]) + tuple(f"input[{number}]" for number in range(len(found), count))


def _applied_class(function: Any) -> type[torch.autograd.Function] | None:
    """Return the class whose `apply` a function is, None for other functions."""
    owner = getattr(function, "__self__", None)
    is_apply = isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and function == owner.apply
    return owner if is_apply else None


def _common(values: Any) -> str:
    found = sorted(set(values))
    return found[0] if len(found) == 1 else ", ".join(found)
