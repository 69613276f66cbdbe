"""One entry of `inputs` to the Input it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gradverify.case import (
    DeviceArgument,
    DtypeArgument,
    Factory,
    Input,
    ListInput,
    Literal,
    Normal,
    Origin,
    SizeArgument,
    TensorInput,
    TupleArgument,
    Values,
)
from gradverify.spec.array import shape_of
from gradverify.spec.dims import sizes_as_written, with_sizes
from gradverify.spec.forms import ARGUMENT_FORMS, DISTRIBUTIONS, OTHER_SOURCES
from gradverify.spec.keys import device
from gradverify.spec.readers import (
    BadValueError,
    Issue,
    Reader,
    expected,
    gather,
    keyed,
    list_of,
    one_of,
    plain_value,
    signed,
)
from gradverify.spec.target import read_data_file, read_target
from gradverify.spec.tensor_keys import TENSOR_DTYPES, TensorModel
from gradverify.spec.tensor_rules import source_issues, tensor_issues
from gradverify.spec.validate import validate


def read_input(plain: Any, folder: Path, dims: Mapping[str, int]) -> Input:
    """Return the input that a plain value describes; raises BadValueError with everything that is wrong with it."""
    if isinstance(plain, dict):
        form = _argument_form(plain)
        return _read_tensor(plain, folder, dims) if form is None else _ARGUMENTS[form](plain, dims)
    if isinstance(plain, list) and any(isinstance(entry, dict) for entry in plain):
        read = partial(_read_list_entry, folder=folder, dims=dims)
        return ListInput(items=tuple(gather((index, read, entry) for index, entry in enumerate(plain)).values()))
    return Literal(value=plain_value(plain))


def _argument_form(plain: dict[str, Any]) -> str | None:
    if any(name in plain for name in ("shape", *DISTRIBUTIONS, *OTHER_SOURCES)):
        return None
    if "dtype" in plain and len(plain) > 1:  # a tensor's modifier, unless it stands alone
        return None
    return next((form for form in ARGUMENT_FORMS if form in plain), None)


def _read_dtype(plain: dict[str, Any], _: Mapping[str, int]) -> Input:
    return DtypeArgument(name=keyed(plain, {"dtype": one_of(TENSOR_DTYPES)})["dtype"])


def _read_size(plain: dict[str, Any], dims: Mapping[str, int]) -> Input:
    evaluated, issues = with_sizes(plain, "size", dims)
    try:
        size = keyed(evaluated, {"size": list_of(signed, "whole numbers")})["size"]
    except BadValueError as reason:
        raise BadValueError(*issues, *reason.issues) from None
    if issues:
        raise BadValueError(*issues)
    return SizeArgument(size=size, sizes=sizes_as_written(plain, "size"))


def _read_tuple(plain: dict[str, Any], _: Mapping[str, int]) -> Input:
    return TupleArgument(items=keyed(plain, {"tuple": list_of(plain_value, "plain values")})["tuple"])


def _read_device(plain: dict[str, Any], _: Mapping[str, int]) -> Input:
    return DeviceArgument(name=keyed(plain, {"device": _device_or_case})["device"])


def _device_or_case(value: Any) -> str:
    return value if value == "case" else device(value)


_ARGUMENTS: dict[str, Callable[[dict[str, Any], Mapping[str, int]], Input]] = {
    "dtype": _read_dtype,
    "size": _read_size,
    "tuple": _read_tuple,
    "device": _read_device,
}


def _read_list_entry(plain: Any, folder: Path, dims: Mapping[str, int]) -> TensorInput:
    if not isinstance(plain, dict):
        raise expected("a tensor, as its neighbours are", plain)
    return _read_tensor(plain, folder, dims)


def _read_tensor(plain: dict[str, Any], folder: Path, dims: Mapping[str, int]) -> TensorInput:
    evaluated, size_issues = with_sizes(plain, "shape", dims)
    issues = [*source_issues(plain), *_path_issues(plain, folder), *size_issues]
    try:
        model = validate(TensorModel, evaluated)
    except BadValueError as reason:
        raise BadValueError(*issues, *reason.issues) from None
    if issues:
        raise BadValueError(*issues)
    tensor = replace(_tensor(model, folder), sizes=sizes_as_written(plain, "shape"))
    issues += tensor_issues(tensor, _known_shape(tensor))
    if issues:
        raise BadValueError(*issues)
    return tensor


def _path_issues(plain: dict[str, Any], folder: Path) -> tuple[Issue, ...]:
    """Return what is wrong with paths, even where other keys are wrong too."""
    readers: dict[str, Reader[Any]] = {
        "file": partial(read_data_file, folder=folder),
        "factory": partial(read_target, folder=folder),
    }
    written = {key: plain[key] for key in readers if isinstance(plain.get(key), str) and plain[key].strip()}
    try:
        gather((key, readers[key], value) for key, value in written.items())
    except BadValueError as reason:
        return reason.issues
    return ()


def _tensor(model: TensorModel, folder: Path) -> TensorInput:
    return TensorInput(
        origin=_origin(model, folder),
        shape=model.shape,
        dtype=model.dtype,
        requires_grad=model.requires_grad,
        layout=model.layout,
        avoid=model.avoid,
        constraint=model.constraint,
        constrained=model.constrained,
    )


def _origin(model: TensorModel, folder: Path) -> Origin:
    if "values" in model.model_fields_set:
        return Values(values=model.values)
    if model.file is not None:
        return read_data_file(model.file, folder)
    if model.factory is not None:
        return Factory(target=read_target(model.factory, folder), args=model.args or {})
    drawn = (model.normal, model.uniform, model.integers, model.bernoulli, model.linspace, model.permutation)
    return next((distribution for distribution in drawn if distribution is not None), Normal())


def _known_shape(tensor: TensorInput) -> tuple[int, ...] | None:
    if tensor.shape is None and isinstance(tensor.origin, Values):
        return shape_of(tensor.origin.values)
    return tensor.shape
