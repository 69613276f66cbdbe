"""A group of signatures as the document of a spec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gradverify.author.recording.drawn import (
    Drawn,
    as_seen,
    highest,
    real_values,
    same_entries,
    truth_values,
    whole_values,
)
from gradverify.author.recording.groups import (
    COMPLEX,
    REAL,
    Group,
    is_differentiable,
    tensors_of,
    values_of,
)
from gradverify.author.recording.notes import SeenArgument, SeenList, SeenPlain, SeenSize, SeenTensor, Signature
from gradverify.author.recording.sizes import Named, Sizes, named_sizes

MOST_RECORDED = 3  # cases at recorded sizes
_DEFAULT_DTYPE = "float64"
LOW_PRECISION = ("bfloat16", "float16")  # differences of a forward in these show little
_COMPARED = ("reference", "contract")  # checks of a case in them
_LONG = 600  # seconds for a case that takes long


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The choices that a document leaves open; they are tried in turn."""

    target: str  # `function` of the document
    named: Named
    small: Sizes | None  # None: no small case
    dtype: str  # of the small case
    recorded: bool = True  # the recorded sizes are cases too
    why_not_recorded: str = ""  # why they are none
    patient: bool = False  # the recorded sizes take long
    draft: str = ""  # why the document is only a draft
    compared: frozenset[str] = frozenset()  # dtypes in which torch's own derivative serves as a reference
    files: Mapping[tuple[int, str], str] | None = None  # of kept values, by number of the signature and input


def document_of(group: Group, plan: Plan) -> dict[str, Any]:
    """Return the document as plain values."""
    cases = _recorded_cases(group, plan) if plan.recorded else {}
    dims: Sizes = plan.small if plan.small is not None else plan.named.recorded[0]
    small: dict[str, Any] = {} if plan.dtype == _DEFAULT_DTYPE else {"dtypes": [plan.dtype]}
    named = {"small": small, **cases} if plan.small is not None else cases
    device = _device(group)
    single = next(iter(named.values())) if len(named) == 1 else {}
    keys: dict[str, Any] = {
        "function": plan.target,
        "draft": plan.draft or None,
        "dims": {**dims, **single.get("dims", {})} or None,
        "inputs": _inputs(group, plan),
        "dtypes": None,
        "devices": None if device == "cpu" else [device],
    }
    if len(named) == 1 and not single.get("inputs"):
        keys |= {key: single.get(key) for key in ("dtypes", "checks", "timeout")}
    elif named:
        keys["cases"] = named
    special = {name: found for name in keys["inputs"] if (found := _special(group, name, plan))}
    if special:
        keys["explore"] = {"indices": {name: {"special": list(values)} for name, values in special.items()}}
    return _without_unused_dims({key: value for key, value in keys.items() if value is not None})


def remarks_of(group: Group, plan: Plan) -> list[str]:
    """Return what is drawn otherwise than it was seen, a sentence each."""
    drawn = {name: _drawn(group, name, plan, plan.small) for name in tensors_of(group.signatures[0])}
    remarks = [f"{name} {each.remark}" for name, each in drawn.items() if each.remark]
    return [*remarks, *([f"no case at recorded sizes: {plan.why_not_recorded}"] if plan.why_not_recorded else [])]


def case_dtype(signature: Signature) -> str:
    """Return the dtype that most of the differentiable tensors of a signature have."""
    found = [tensor.dtype for tensor in tensors_of(signature).values() if is_differentiable(tensor)]
    asked = [t.dtype for t in tensors_of(signature).values() if is_differentiable(t) and t.requires_grad]
    most = asked or found
    return max(dict.fromkeys(most), key=most.count, default=_DEFAULT_DTYPE)


def double_of(dtype: str) -> str:
    """Return the dtype in which differences show most."""
    return "complex128" if dtype in COMPLEX else _DEFAULT_DTYPE


def _without_unused_dims(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without sizes that only an input had whose values are in a file in every case."""
    cases = document.get("cases", {"": {}})
    used = {
        word
        for case in cases.values()
        for name, written in document["inputs"].items()
        if "file" not in case.get("inputs", {}).get(name, {})
        for word in _names_in(written)
    }
    for keys in (document, *cases.values()):
        if "dims" in keys:
            keys["dims"] = {name: size for name, size in keys["dims"].items() if name in used}
    return {key: value for key, value in document.items() if value != {} or key != "dims"}


def _names_in(written: Any) -> set[str]:
    """Return the words in the shapes and sizes of an input."""
    if isinstance(written, list):
        return {name for entry in written for name in _names_in(entry)}
    sizes = [entry for key in ("shape", "size") for entry in written.get(key, [])] if isinstance(written, dict) else []
    return {word for entry in sizes if isinstance(entry, str) for word in re.findall(r"[a-z]\w*", entry)}


def _inputs(group: Group, plan: Plan) -> dict[str, Any]:
    return {name: _input(group, name, argument, plan) for name, argument in group.signatures[0].arguments.items()}


def _input(group: Group, name: str, argument: SeenArgument, plan: Plan) -> Any:
    if isinstance(argument, SeenTensor):
        return _tensor(group, name, plan)
    if isinstance(argument, SeenList):
        return [_input(group, f"{name}[{number}]", item, plan) for number, item in enumerate(argument.items)]
    if isinstance(argument, SeenSize):
        return {"size": [plan.named.entries[name, axis] for axis in range(len(argument.size))]}
    return argument.value if isinstance(argument, SeenPlain) else None


def _tensor(group: Group, name: str, plan: Plan) -> dict[str, Any]:
    tensor = tensors_of(group.signatures[0])[name]
    drawn = _drawn(group, name, plan, plan.small)
    shape = [plan.named.entries[name, axis] for axis in range(len(tensor.shape))]
    layouts = {tensors_of(signature)[name].layout for signature in group.signatures}
    keys: dict[str, Any] = drawn.keys if "values" in drawn.keys else {"shape": shape, **drawn.keys}
    if not is_differentiable(tensor) and tensor.dtype not in ("int64", "bool"):
        keys["dtype"] = tensor.dtype
    if tensor.dtype in REAL and case_dtype(group.signatures[0]) in COMPLEX:
        keys["dtype"] = _DEFAULT_DTYPE
    if is_differentiable(tensor) and not _requires_grad(group, name):
        keys["requires_grad"] = False
    if len(layouts) == 1 and tensor.layout != "contiguous":
        keys["layout"] = tensor.layout
    return keys


def _requires_grad(group: Group, name: str) -> bool:
    """True if a tensor required grad in some call, or no tensor did in any: then all of them are differentiated."""
    asked = {name for each in group.signatures for name, tensor in tensors_of(each).items() if tensor.requires_grad}
    return name in asked or not asked


def _drawn(group: Group, name: str, plan: Plan, small: Sizes | None) -> Drawn:
    tensor = tensors_of(group.signatures[0])[name]
    seen = values_of(group, name)
    if is_differentiable(tensor):
        return real_values(seen, differentiated=_requires_grad(group, name))
    if tensor.dtype == "bool":
        return truth_values(seen)
    row = _recorded_row(plan.named, small)
    if row is not None and (entries := _entries(group, name)):
        return as_seen(entries[row])
    return whole_values(seen, below=None if small is None else _small_bound(group, name, plan, small))


def fits(group: Group, named: Named, small: Sizes) -> bool:
    """Return True unless whole numbers are written as they were seen and these sizes were not."""
    is_recorded = _recorded_row(named, small) is not None
    return is_recorded or not any(_entries(group, name) for name in tensors_of(group.signatures[0]))


def _recorded_row(named: Named, small: Sizes | None) -> int | None:
    """Return the number of the signature that has these sizes."""
    return 0 if small is None else next((row for row, each in enumerate(named.recorded) if each == small), None)


def _entries(group: Group, name: str) -> tuple[tuple[Any, ...], ...]:
    """Return the whole numbers of an input in each signature, () unless they were the same in all of its calls."""
    if is_differentiable(tensors_of(group.signatures[0])[name]):
        return ()
    found = [same_entries(signature.values.get(name, ())) for signature in group.signatures]
    return tuple(each for each in found if each) if all(found) else ()


def _special(group: Group, name: str, plan: Plan) -> tuple[int, ...]:
    """Return the whole numbers of an input that explore should try, beside those that are drawn."""
    return _drawn(group, name, plan, plan.small).special if name in tensors_of(group.signatures[0]) else ()


def _small_bound(group: Group, name: str, plan: Plan, small: Sizes) -> int | None:
    """Return the size of the dimension that an input seems to count in: the smallest one that it never reached."""
    largest = [highest(signature.values.get(name, ())) for signature in group.signatures]
    fitting: dict[str, int] = {}
    for (owner, _), entry in plan.named.entries.items():
        inner = tensors_of(group.signatures[0]).get(owner)
        if entry not in plan.named.recorded[0] or inner is None or not is_differentiable(inner):
            continue
        sizes = [recorded[str(entry)] for recorded in plan.named.recorded]
        if all(top is None or top < size for top, size in zip(largest, sizes, strict=True)):
            fitting[str(entry)] = min(sizes)
    return small[min(fitting, key=lambda each: fitting[each])] if fitting else None


def _recorded_cases(group: Group, plan: Plan) -> dict[str, Any]:
    """Return the cases at recorded sizes: those called most, each with all dtypes that it was called with."""
    merged: dict[str, dict[str, Any]] = {}
    for number, signature in enumerate(group.signatures):
        dtype = case_dtype(signature)
        keys = _recorded_case(group, plan, number)
        checks = {"checks": list(_COMPARED)} if dtype in plan.compared else {}
        found = merged.setdefault(repr((keys, checks)), {**keys, "dtypes": [], **checks})
        if dtype not in found["dtypes"]:
            found["dtypes"].append(dtype)
    kept = [keys for keys in merged.values() if not _is_small(keys, plan)][:MOST_RECORDED]
    for keys in kept:
        if keys["dtypes"] == [_DEFAULT_DTYPE]:
            del keys["dtypes"]
        if plan.patient:
            keys["timeout"] = _LONG
    return {f"recorded{f'-{number}' if number > 1 else ''}": keys for number, keys in enumerate(kept, start=1)}


def _is_small(keys: Mapping[str, Any], plan: Plan) -> bool:
    return plan.small is not None and keys == {"dtypes": [plan.dtype]}


def _recorded_case(group: Group, plan: Plan, number: int) -> dict[str, Any]:
    """Return what a case at recorded sizes changes."""
    sizes = plan.named.recorded[number]
    base = plan.small if plan.small is not None else plan.named.recorded[0]
    dims = {name: size for name, size in sizes.items() if base[name] != size}
    inputs = {
        name: changed
        for name, argument in group.signatures[number].arguments.items()
        if isinstance(argument, SeenTensor) and (changed := _changed_input(group, plan, number, name, argument))
    }
    return {**({"dims": dims} if dims else {}), **({"inputs": inputs} if inputs else {})}


def _changed_input(group: Group, plan: Plan, number: int, name: str, tensor: SeenTensor) -> dict[str, Any]:
    signature = group.signatures[number]
    layouts = {tensors_of(each)[name].layout for each in group.signatures}
    changed: dict[str, Any] = {}
    if len(layouts) > 1 and tensor.layout != "contiguous":
        changed["layout"] = tensor.layout
    if is_differentiable(tensor):
        dtype = case_dtype(signature)
        return changed | ({"dtype": tensor.dtype} if tensor.dtype != dtype and tensor.dtype in REAL else {})
    if plan.files and (number, name) in plan.files:
        return changed | {"file": plan.files[number, name]}
    if tensor.dtype != "bool":
        entries = _entries(group, name)
        own = (
            as_seen(entries[number])
            if entries
            else whole_values(signature.values.get(name, ()) or values_of(group, name))
        )
        drawn = _drawn(group, name, plan, plan.small)
        changed |= own.keys if own.keys != drawn.keys else {}
    return changed


def _device(group: Group) -> str:
    found = [tensor.device for tensor in tensors_of(group.signatures[0]).values() if is_differentiable(tensor)]
    return found[0] if found else "cpu"


def first_plan(group: Group, target: str) -> Plan:
    """Return the plan with the recorded sizes alone."""
    return Plan(target=target, named=named_sizes(group), small=None, dtype=case_dtype(group.signatures[0]))


def as_draft(plan: Plan, reason: str) -> Plan:
    """Return the plan of a document that says why it is not finished."""
    return replace(plan, draft=reason, small=None, recorded=True)
