"""What a worker found out about the targets, said as mistakes of the specs that name them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradverify.case import (
    Absence,
    Case,
    Factory,
    ListInput,
    Literal,
    Parameter,
    ParameterKind,
    Signature,
    Target,
    TargetKind,
    TargetProblem,
    TensorInput,
)
from gradverify.errors import SpecError, Where
from gradverify.spec.expand import case_key
from gradverify.spec.model import Spec, SpecCase
from gradverify.spec.node import Place, error
from gradverify.spec.wording import listed, meant, shortened

Loaded = Mapping[Target, Signature | TargetProblem]

_NAMED = (ParameterKind.POSITIONAL, ParameterKind.KEYWORD_ONLY)
_VALUES = {"int": "4", "float": "0.5", "bool": "true", "str": "text"}  # an example by annotation
_MANY = 3  # wrong arguments of a reference that are one mistake: its parameters have other names


def targets_of(case: Case) -> tuple[Target, ...]:
    """Return every target that has to be loaded: the function, its surrogate and reference, factories of inputs.

    A draft has none.
    """
    if case.draft:
        return ()
    factories = (item.target for item in _factories(case.inputs).values())
    others = (target for target in (case.surrogate, case.reference) if target is not None)
    return tuple(dict.fromkeys((case.target, *others, *factories)))


def check_signatures(specs: Sequence[Spec], cases: Sequence[Case], loaded: Loaded) -> tuple[SpecError, ...]:
    """Return what is wrong with the specs of these cases, in the order of their places.

    A target that `loaded` does not hold is passed over, and so are drafts and one whose module raised: that is not the
    spec's mistake.
    """
    wanted = {(case.spec, case.draw_key.rpartition("/")[0]) for case in cases}
    written = ((spec.file, case_key(spec, case), case) for spec in specs for case in spec.cases)
    errors = [
        reason
        for file, key, case in written
        if (file, key) in wanted and not case.draft
        for reason in _errors(case, loaded)
    ]
    return tuple(sorted({str(reason): reason for reason in errors}.values(), key=_order))


def _errors(case: SpecCase, loaded: Loaded) -> Iterator[SpecError]:
    found = loaded.get(case.target)
    if isinstance(found, TargetProblem):
        yield from _absent(case.places["function"], case.target, found)
    elif found is not None:
        yield from _wrong_names(case, found)
        yield from _wrong_init(case, found)
    if case.surrogate is not None:
        yield from _wrong_surrogate(case, case.surrogate, found, loaded.get(case.surrogate))
    if case.reference is not None:
        yield from _wrong_reference(case, case.reference, found, loaded.get(case.reference))
    for key, factory in _factories(case.inputs).items():
        made = loaded.get(factory.target)
        if isinstance(made, TargetProblem):
            yield from _absent(case.places[f"{key}.factory"], factory.target, made)
        elif made is not None and made.kind is TargetKind.CALLABLE:
            given = {name: case.places[f"{key}.args.{name}"] for name in factory.args}
            call = _Call(word=f"`{factory.target.name}`", given=given, place=case.places[f"{key}.factory"])
            yield from _wrong_arguments(call, made.parameters)


def _absent(place: Place, target: Target, problem: TargetProblem) -> Iterator[SpecError]:
    if problem.absence in (Absence.RAISED, Absence.UNAVAILABLE):
        return
    there = f"there is: {listed(problem.names)}" if problem.names else ""
    yield error(place, problem.message, meant(target.name, problem.names) or there)


def _wrong_names(case: SpecCase, signature: Signature) -> Iterator[SpecError]:
    wrong = list(_wrong_inputs(case, signature))
    if not case.inputs and case.init is None and not wrong:
        wrong = [error(case.places["inputs"], "there is no input")]
    yield from wrong


def _wrong_inputs(case: SpecCase, signature: Signature) -> Iterator[SpecError]:
    if signature.parameters is None:
        return
    forward = _word(case.target, signature)
    given = {name: case.places[f"inputs.{name}"] for name in case.inputs}
    elsewhere = frozenset(parameter.name for parameter in signature.init or ())
    call = _Call(word=forward, given=given, place=case.places["inputs"], constructor=elsewhere)
    yield from _wrong_arguments(call, signature.parameters)
    for parameter in signature.parameters:
        value = case.inputs.get(parameter.name)
        spread = isinstance(value, ListInput) or (isinstance(value, Literal) and isinstance(value.value, list))
        if parameter.kind is ParameterKind.VAR_POSITIONAL and value is not None and not spread:
            place = case.places[f"inputs.{parameter.name}"]
            yield error(place, f"`*{parameter.name}` of {forward} takes a list")


def _wrong_init(case: SpecCase, signature: Signature) -> Iterator[SpecError]:
    if signature.kind is not TargetKind.MODULE:
        if case.init is not None:
            problem = f"`{shortened(case.target.written)}` is no nn.Module class, so there is nothing to construct"
            yield error(case.places["init"], problem)
        return
    given = {name: case.places[f"init.{name}"] for name in case.init or {}}
    call = _Call(word=f"the constructor of `{case.target.name}`", given=given, place=case.places["init"])
    named = signature.init and [one for one in signature.init if one.kind is not ParameterKind.VAR_POSITIONAL]
    yield from _wrong_arguments(call, named)


def _wrong_surrogate(
    case: SpecCase,
    target: Target,
    function: Signature | TargetProblem | None,
    found: Signature | TargetProblem | None,
) -> Iterator[SpecError]:
    place = case.places["surrogate"]
    if isinstance(function, Signature) and function.kind is TargetKind.MODULE:
        problem = f"`{shortened(case.target.written)}` is an nn.Module class, and a surrogate has no parameters"
        yield error(place, problem, "write a function that takes them as arguments")
    elif isinstance(found, TargetProblem):
        yield from _absent(place, target, found)
    elif found is not None and found.kind is TargetKind.MODULE:
        yield error(place, f"`{shortened(target.written)}` is an nn.Module class", "a surrogate is a function")
    elif found is not None:
        call = _Call(word=f"the surrogate `{target.name}`", given=dict.fromkeys(case.inputs, place), place=place)
        yield from _wrong_arguments(call, found.parameters)


def _wrong_reference(
    case: SpecCase,
    target: Target,
    function: Signature | TargetProblem | None,
    found: Signature | TargetProblem | None,
) -> Iterator[SpecError]:
    """Yield the arguments that a reference lacks; those beside the inputs may be parameters of a module."""
    place = case.places["reference"]
    if isinstance(found, TargetProblem):
        yield from _absent(place, target, found)
        return
    if found is None or found.parameters is None:
        return
    call = _Call(word=f"the reference `{target.name}`", given=dict.fromkeys(case.inputs, place), place=place)
    may_have_parameters = isinstance(function, TargetProblem)  # it raised, which its own error says
    if isinstance(function, Signature):
        may_have_parameters = function.kind is TargetKind.MODULE
    wrong = list(_unknown(call, found.parameters))
    if not may_have_parameters or found.kind is TargetKind.MODULE:
        wrong += _missing(call, found.parameters)
    yield from wrong if len(wrong) < _MANY else [_other_arguments(call, found.parameters)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """Arguments that a spec gives by name."""

    word: str  # what takes them
    given: Mapping[str, Place]  # by name
    place: Place  # of all of them together
    constructor: Collection[str] = ()  # names that belong under `init` instead


def _wrong_arguments(call: _Call, parameters: Sequence[Parameter] | None) -> Iterator[SpecError]:
    if parameters is not None:
        yield from _unknown(call, parameters)
        yield from _missing(call, parameters)


def _unknown(call: _Call, parameters: Sequence[Parameter]) -> Iterator[SpecError]:
    if any(parameter.kind is ParameterKind.VAR_KEYWORD for parameter in parameters):
        return
    names = tuple(parameter.name for parameter in parameters)
    for name, place in call.given.items():
        if name in names:
            continue
        takes = f"it takes: {listed(names)}" if names else "it takes nothing"
        hint = f"leave `{name}` out" if name in ("ctx", "self") else meant(name, names) or takes
        if name in call.constructor:
            word = f"write init.{name}" if not place.where.line else "write it under `init`"
            hint = f"the constructor has one: {word}"
        yield error(place, f"{call.word} has no parameter `{shortened(name)}`", hint)


def _missing(call: _Call, parameters: Sequence[Parameter]) -> Iterator[SpecError]:
    for parameter in parameters:
        needed = parameter.kind in _NAMED and not parameter.has_default
        if needed and parameter.name not in call.given:
            problem = f"`{parameter.name}` is missing, {call.word} has no default for it"
            yield error(call.place, problem, _how_to_add(parameter, call.place))


def _how_to_add(parameter: Parameter, place: Place) -> str:
    """Return a hint for a missing argument of a command line; "" for one of a file."""
    if place.where.line:
        return ""
    usual = "4" if place.path == "init" else "0.5"  # most arguments of constructors are sizes
    value = f"{parameter.name}={_VALUES.get(parameter.annotation, usual)}"
    is_value = parameter.annotation in _VALUES
    tensor = "" if is_value else f"{parameter.name}:4 for a tensor of four entries, or "
    return {"inputs": f"add {tensor}{value}", "init": f"add init.{value}"}.get(place.path, "")


def _other_arguments(call: _Call, parameters: Sequence[Parameter]) -> SpecError:
    """Return one error for arguments that have little in common."""
    names = listed(tuple(parameter.name for parameter in parameters)) or "nothing"
    problem = f"{call.word} takes {names}, but the inputs are {listed(tuple(call.given))}"
    return error(call.place, problem, "it takes the same arguments by the same names")


def _word(target: Target, signature: Signature) -> str:
    return f"`{target.name}`" if signature.kind is TargetKind.CALLABLE else "`forward`"


def _factories(inputs: Mapping[str, object]) -> dict[str, Factory]:
    factories: dict[str, Factory] = {}
    for name, value in inputs.items():
        items = value.items if isinstance(value, ListInput) else (value,)
        for index, item in enumerate(items):
            if isinstance(item, TensorInput) and isinstance(item.origin, Factory):
                key = f"inputs.{name}[{index}]" if isinstance(value, ListInput) else f"inputs.{name}"
                factories[key] = item.origin
    return factories


def _order(reason: SpecError) -> tuple[Where, str, str]:
    return reason.where, reason.path, reason.problem
