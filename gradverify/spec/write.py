"""One case as a YAML document that reads back to an equal case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradverify.case import (
    DEFAULT_DEVICES,
    DEFAULT_DTYPES,
    DEFAULT_TIMEOUT,
    Case,
    Expectation,
    ExploreRules,
    Float32Products,
    IndexRange,
    SizeRange,
    Tolerances,
    TorchGradcheck,
    default_checks,
)
from gradverify.formula import names_of, parse
from gradverify.result import ExpectedCheck, Verdict
from gradverify.spec.flow import flow, wrapped
from gradverify.spec.keys import OWN_TOLERANCES
from gradverify.spec.resolve import COMPARISON, DIFFERENCES
from gradverify.spec.wording import visible
from gradverify.spec.write_inputs import plain_input, short, sizes_in, target_text

_IN_LINES = ("inputs", "explore", "cases")  # keys whose entries have a line each


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """What multiplies a case."""

    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    samples: int = 1
    seed: int | None = None  # written even if it is 0


def spec_text(case: Case, *, comment: str = "", folder: Path | None = None, several: Several | None = None) -> str:
    """Return a YAML document that reads back to an equal case, with a comment above it.

    With `several`, it reads back to cases of these dtypes and devices, with so many samples and this seed.

    Paths are relative to `folder`, the one that the document is to be written to, and absolute if it is None. These are
    left out: defaults, dims that nothing uses, a surrogate or reference that no check uses, and what only the command
    line can say. Drawn values depend on the name of the case and, if no seed is written, on that of the file; the
    document holds neither. Raises ValueError for a value that YAML has no word for, with the name of its input.
    """
    document = _document(case, folder, several or Several(dtypes=(case.dtype,), devices=(case.device,)))
    return document_text(document, comment=comment)


def document_text(document: Mapping[str, Any], *, comment: str = "") -> str:
    """Return a YAML document of plain values, with a comment above it.

    Keys keep their order. Inputs, cases and rules for exploring have a line each, other values are in flow style.
    Raises ValueError for a value that YAML has no word for.
    """
    lines = [f"# {visible(line)}".rstrip() for line in comment.splitlines()]
    for key, value in document.items():
        if key in _IN_LINES and value:
            lines += [f"{key}:", *(_line(name, entry, "  ") for name, entry in value.items())]
        else:
            lines.append(_line(key, value, ""))
    return "".join(f"{line}\n" for line in lines)


def inputs_text(case: Case) -> str:
    """Return `init`, if there is one, and the inputs as a spec has them, one per line; raises as `spec_text` does."""
    written = ({"init": _plain("init", dict(case.init))} if case.init else {}) | _inputs(case, None)
    return "\n".join(f"{flow(name)}: {flow(value)}" for name, value in written.items())


def _line(name: str, value: Any, indent: str) -> str:
    key = f"{indent}{flow(name)}: "
    return key + wrapped(value, len(key))


def _document(case: Case, folder: Path | None, several: Several) -> dict[str, Any]:
    """Return the keys of the document that are not at their default, in the order in which they are written."""
    used = _used_dims(case)
    dims = {name: size for name, size in case.dims.items() if name in used}
    keys = {
        "function": target_text(case.target, folder),
        "draft": case.draft or None,
        "init": _plain("init", dict(case.init)) if case.init is not None else None,
        "dims": dims or None,
        "inputs": _inputs(case, folder),
        **_compared_with(case, folder),
        "outputs": None if case.outputs is None else list(case.outputs),
        "stochastic": case.stochastic or None,
        **_running(case, several),
        **_tolerances(case.tolerances),
        "explore": _explore(_about(case.explore, dims, case)) or None,
        "expect": _expect(case.expect),
    }
    return {key: value for key, value in keys.items() if value is not None}


def _inputs(case: Case, folder: Path | None) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in case.inputs.items():
        try:
            described = plain_input(value, case.dims, folder)
        except ValueError as reason:
            raise ValueError(f"input `{name}`: {reason}") from None
        plain[name] = _plain(f"input `{name}`", described)
    return plain


def _plain(what: str, value: Any) -> Any:
    """Return a value that can be written; raises ValueError with the name of what it belongs to."""
    try:
        flow(value)
    except ValueError as reason:
        raise ValueError(f"{what}: {reason}") from None
    return value


def _used_dims(case: Case) -> set[str]:
    expressions = [text for value in case.inputs.values() for text in sizes_in(value)]
    expressions += [text.below for text in case.explore.indices.values() if isinstance(text.below, str)]
    expressions += [case.explore.require] if case.explore.require else []
    return {name for text in expressions for name in names_of(parse(text))}


def _compared_with(case: Case, folder: Path | None) -> dict[str, Any]:
    """Return the functions beside the function that some check uses."""
    has_surrogate = case.surrogate is not None and set(case.checks) & set(DIFFERENCES)
    has_reference = case.reference is not None and COMPARISON in case.checks
    return {
        "surrogate": target_text(case.surrogate, folder) if case.surrogate and has_surrogate else None,
        "reference": target_text(case.reference, folder) if case.reference and has_reference else None,
    }


def _running(case: Case, several: Several) -> dict[str, Any]:
    has_reference = case.reference is not None and COMPARISON in case.checks
    default = default_checks(has_reference=has_reference, dtype=case.dtype)
    return {
        "checks": None if case.checks == default else list(case.checks),
        "dtypes": None if several.dtypes == DEFAULT_DTYPES else list(several.dtypes),
        "devices": None if several.devices == DEFAULT_DEVICES else list(several.devices),
        "samples": several.samples if several.samples > 1 else None,
        "seed": several.seed if several.seed is not None else case.seed or None,
        "timeout": None if case.timeout == DEFAULT_TIMEOUT else short(case.timeout),
        "torch_gradcheck": None if case.torch_gradcheck is TorchGradcheck.SMALL else str(case.torch_gradcheck),
        "precision": str(Float32Products.TF32) if case.tf32 else None,
        "interpret": case.interpret or None,
    }


def _tolerances(given: Mapping[str, Tolerances]) -> dict[str, Any]:
    """Return `rtol` and `atol` of the document, and those of single checks that differ."""
    common = {key: _common({check: getattr(each, key) for check, each in given.items()}) for key in ("rtol", "atol")}
    own: dict[str, dict[str, float]] = {}
    for check, tolerances in given.items():
        for key, shared in common.items():
            value = getattr(tolerances, key)
            if value == shared:
                continue
            if value is None or check not in OWN_TOLERANCES:
                raise ValueError(f"{key} of `{check}` has no place beside those of the other checks")
            own.setdefault(check, {})[key] = value
    return {**common, **own}


def _common(values: Mapping[str, float | None]) -> float | None:
    """Return the tolerance that the document has to have."""
    shared = [value for check, value in values.items() if check not in OWN_TOLERANCES] or list(values.values())
    return shared[0] if shared and len(set(shared)) == 1 else None


def _about(rules: ExploreRules, dims: Mapping[str, int], case: Case) -> ExploreRules:
    """Return rules without those for dims that are left out."""
    sizes = {name: allowed for name, allowed in rules.sizes.items() if name in dims}
    known = {*dims, *case.inputs, *(f"init.{name}" for name in case.init or {})}
    return replace(rules, sizes=sizes, fixed=tuple(name for name in rules.fixed if name in known))


def _explore(rules: ExploreRules) -> dict[str, Any]:
    keys = {
        "sizes": {name: _size_range(allowed) for name, allowed in rules.sizes.items()},
        "ranges": {name: [short(low), short(high)] for name, (low, high) in rules.ranges.items()},
        "indices": {name: _index_range(allowed) for name, allowed in rules.indices.items()},
        "choices": {name: list(allowed) for name, allowed in rules.choices.items()},
        "require": rules.require,
        "fixed": list(rules.fixed),
        "budget": rules.budget if rules.budget != ExploreRules().budget else None,
    }
    return {key: _plain(f"explore.{key}", value) for key, value in keys.items() if value}


def _size_range(allowed: SizeRange) -> dict[str, int]:
    keys = {"from": allowed.low, "to": allowed.high, "multiple_of": allowed.multiple_of}
    default = {"from": SizeRange().low, "multiple_of": SizeRange().multiple_of}
    return {key: value for key, value in keys.items() if value is not None and value != default.get(key)}


def _index_range(allowed: IndexRange) -> dict[str, Any]:
    below = {} if allowed.below is None else {"below": allowed.below}
    return below | ({"special": list(allowed.special)} if allowed.special else {})


def _expect(expected: Expectation) -> Any:
    if expected == Expectation():
        return None
    named: dict[str, Any] = {name: _expected_check(check) for name, check in expected.checks.items()}
    named |= {} if expected.cause is None else {"cause": expected.cause}
    named |= {} if expected.saved_bytes is None else {"saved_bytes": expected.saved_bytes.written}
    return named or str(expected.verdict)


def _expected_check(check: ExpectedCheck) -> Any:
    exact: dict[str, Any] = {} if check.cause is None else {"cause": check.cause}
    exact |= {"codes": list(check.codes)} if check.codes else {}
    if not exact:
        return str(check.verdict)
    return exact if check.verdict is Verdict.FAIL else {"verdict": str(check.verdict), **exact}
