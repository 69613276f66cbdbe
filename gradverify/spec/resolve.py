"""The mapping of one case to a checked SpecCase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradverify.case import (
    DEFAULT_DTYPES,
    INIT,
    Factory,
    Float32Products,
    Input,
    ListInput,
    Literal,
    Target,
    TensorInput,
    default_checks,
)
from gradverify.spec.cases import RawCase
from gradverify.spec.dims import is_sized, readable_dims
from gradverify.spec.explore_rules import explore_issues
from gradverify.spec.inputs import read_input
from gradverify.spec.keys import Document, DocumentModel, check_tolerances
from gradverify.spec.model import SpecCase
from gradverify.spec.node import Loc, Node, Place, dotted, key_place, value_place
from gradverify.spec.readers import BadValueError, Issue
from gradverify.spec.target import read_target
from gradverify.spec.validate import validate

DIFFERENCES = ("gradcheck", "gradgradcheck")  # checks that a surrogate is for
COMPARISON = "reference"  # the check that a reference is for
# What was read before: cases share most of their inputs, and a large one is to be checked once. The sizes of `dims` are
# part of the key where an input depends on them.
Remembered = dict[tuple[Node, tuple[tuple[str, int], ...]], Input | BadValueError]


def read_case(raw: RawCase, folder: Path, remembered: Remembered) -> SpecCase:
    """Return the case; its name is "" where the document gives none. Raises BadValueError with all that is wrong."""
    issues: list[Issue] = []
    others = ("cases",) if raw.name is None else ()
    document = _collect(issues, lambda: validate(Document, _without_input_values(raw.node), others))
    target = _collect(issues, lambda: _read_target("function", raw.node, folder))
    surrogate = _collect(issues, lambda: _read_target("surrogate", raw.node, folder))
    reference = _collect(issues, lambda: _read_target("reference", raw.node, folder))
    inputs = _read_inputs(raw.node, folder, issues, remembered)
    issues += _dims_issues(raw.node)
    if document is not None:
        issues += _document_issues(document)
        read = {name: inputs.get(name) for name in document.inputs}
        read |= {f"{INIT}{name}": Literal(value=value) for name, value in (document.init or {}).items()}
        issues += explore_issues(document.explore, document.dims, read)
    if issues or document is None or target is None:
        raise BadValueError(*issues)
    beside = {"surrogate": surrogate, "reference": reference}
    return _spec_case(raw, document, target, beside, inputs)


def _collect(issues: list[Issue], read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BadValueError as reason:
        issues += reason.issues
        return None


def _without_input_values(node: Node) -> dict[str, Any]:
    """Return the plain mapping with the names of the inputs alone, which are read one by one."""
    plain: dict[str, Any] = dict(node.plain)
    if isinstance(plain.get("inputs"), dict):
        plain["inputs"] = dict.fromkeys(plain["inputs"])
    return plain


def _read_target(key: str, node: Node, folder: Path) -> Target | None:
    written = node.plain.get(key)
    if not isinstance(written, str) or not written.strip():
        return None  # the model says so
    try:
        return read_target(written, folder)
    except BadValueError as reason:
        raise BadValueError(*(replace(issue, at=(key, *issue.at)) for issue in reason.issues)) from None


def _read_inputs(node: Node, folder: Path, issues: list[Issue], remembered: Remembered) -> dict[str, Input]:
    assert node.members is not None
    member = node.members.get("inputs")
    dims = readable_dims(node.plain.get("dims", {}))
    values: dict[str, Input] = {}
    for name, entry in ((member and member.node.members) or {}).items():
        sized = is_sized(entry.node.plain)
        if sized and dims is None:
            continue  # until the sizes are right
        value = _read_once(entry.node, folder, (dims or {}) if sized else {}, remembered)
        if isinstance(value, BadValueError):
            issues += (replace(issue, at=("inputs", name, *issue.at)) for issue in value.issues)
        else:
            values[name] = value
    return values


def _read_once(node: Node, folder: Path, dims: Mapping[str, int], remembered: Remembered) -> Input | BadValueError:
    key = (node, tuple(dims.items()))
    if key not in remembered:
        try:
            remembered[key] = read_input(node.plain, folder, dims)
        except BadValueError as reason:
            remembered[key] = reason
    return remembered[key]


def _dims_issues(node: Node) -> Iterator[Issue]:
    """Yield a name that both a size and an input have."""
    dims, inputs = node.plain.get("dims"), node.plain.get("inputs")
    for name in dims if isinstance(dims, dict) and isinstance(inputs, dict) else ():
        if name in inputs:
            hint = "give the size another name, so that `explore` can tell them apart"
            yield Issue(at=("dims", name), on_key=True, problem="an input has this name too", hint=hint)


def _document_issues(document: DocumentModel) -> Iterator[Issue]:
    checks = document.checks or _all_default_checks(document)
    for check in document.expect.checks:
        if check not in checks:
            hint = f"checks: {', '.join(checks)}"
            yield Issue(at=("expect", check), on_key=True, problem="is not among the checks that run", hint=hint)
    if document.surrogate is not None and not set(checks) & set(DIFFERENCES):
        problem = f"only {' and '.join(DIFFERENCES)} use it, and neither is among the checks"
        yield Issue(at=("surrogate",), on_key=True, problem=problem, hint=f"checks: {', '.join(checks)}")
    if document.reference is not None and COMPARISON not in checks:
        problem = f"only `{COMPARISON}` uses it, and it is not among the checks"
        yield Issue(at=("reference",), on_key=True, problem=problem, hint=f"checks: {', '.join(checks)}")


def _all_default_checks(document: DocumentModel) -> tuple[str, ...]:
    """Return the default checks of the document's dtypes, each once."""
    has_reference = document.reference is not None
    found = (default_checks(has_reference=has_reference, dtype=dtype) for dtype in document.dtypes or DEFAULT_DTYPES)
    return tuple(dict.fromkeys(check for checks in found for check in checks))


def _spec_case(
    raw: RawCase,
    document: DocumentModel,
    target: Target,
    others: Mapping[str, Target | None],
    inputs: Mapping[str, Input],
) -> SpecCase:
    return SpecCase(
        name=raw.name or "",
        line=raw.line,
        draft=document.draft,
        target=target,
        surrogate=others["surrogate"],
        reference=others["reference"],
        init=document.init,
        inputs=inputs,
        outputs=document.outputs,
        stochastic=document.stochastic,
        checks=document.checks,
        dtypes=document.dtypes,
        devices=document.devices,
        samples=document.samples,
        seed=document.seed,
        timeout=document.timeout,
        tolerances=check_tolerances(document),
        torch_gradcheck=document.torch_gradcheck,
        tf32=document.precision is Float32Products.TF32,
        interpret=document.interpret,
        dims=document.dims,
        explore=document.explore,
        expect=document.expect,
        places=_places(raw.node, document.init or {}, inputs),
    )


def _places(root: Node, init: Mapping[str, Any], inputs: Mapping[str, Input]) -> dict[str, Place]:
    places = {key: value_place(root, (key,)) for key in ("function", "surrogate", "reference")}
    places |= {key: key_place(root, (key,)) for key in ("init", "inputs", "outputs")}
    places |= {f"init.{name}": key_place(root, ("init", name)) for name in init}
    for name, value in inputs.items():
        places[f"inputs.{name}"] = key_place(root, ("inputs", name))
        for loc, factory in _factories(("inputs", name), value):
            places[dotted("", (*loc, "factory"))] = value_place(root, (*loc, "factory"))
            arguments = [(*loc, "args", argument) for argument in factory.args]
            places |= {dotted("", argument): key_place(root, argument) for argument in arguments}
    return places


def _factories(loc: Loc, value: Input) -> Iterator[tuple[Loc, Factory]]:
    if isinstance(value, TensorInput) and isinstance(value.origin, Factory):
        yield loc, value.origin
    elif isinstance(value, ListInput):
        for index, item in enumerate(value.items):
            yield from _factories((*loc, index), item)
