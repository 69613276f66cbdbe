"""The keys of an input that is a tensor: how each is read, and what an editor is told about it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from gradverify.case import (
    Bernoulli,
    Constraint,
    Integers,
    Layout,
    Linspace,
    Normal,
    Permutation,
    Uniform,
)
from gradverify.spec.array import nested_numbers, shape
from gradverify.spec.distributions import bernoulli, integers, linspace, normal, permutation, uniform
from gradverify.spec.field import Read, one_of_schema, pair_schema
from gradverify.spec.readers import (
    distinct_list_of,
    mapping_of_names,
    number,
    one_of,
    text,
    true_or_false,
)

COMPLEX = ("complex64", "complex128")
DIFFERENTIABLE = ("case", "float16", "bfloat16", "float32", "float64", *COMPLEX)
TENSOR_DTYPES = (*DIFFERENTIABLE, "bool", "uint8", "int8", "int16", "int32", "int64")

_SIZES = {
    "type": "array",
    "items": {"type": ["integer", "string"], "minimum": 0},
    "description": "sizes; names in `dims`",
}
_SHAPE = Read(shape, _SIZES)
_NORMAL = Read(normal, pair_schema("number", "[mean, standard deviation]"))
_UNIFORM = Read(uniform, pair_schema("number", "[low, high]"))
_INTEGERS = Read(integers, pair_schema("integer", "[low, high], high exclusive"))
_BERNOULLI = Read(bernoulli, {"type": "number", "minimum": 0, "maximum": 1, "description": "probability of a one"})
_LINSPACE = Read(linspace, pair_schema("number", "[start, end], both inclusive"))
_PERMUTATION = Read(permutation, {"const": True, "description": "of 0 … n-1, along the last dimension"})
_VALUES = Read(nested_numbers, {"type": ["array", "number", "string"], "description": "numbers; complex ones as text"})
_FILE = Read(
    text,
    {
        "type": "string",
        "description": "a .pt, .npy or .npz file; of several tensors: file.npz:name",
    },
)
_FACTORY = Read(text, {"type": "string", "pattern": ":[^:]+$", "description": "path.py:name of what makes the input"})
_ARGS = Read(mapping_of_names, {"type": "object", "description": "arguments of the factory"})
_DTYPE = Read(one_of(TENSOR_DTYPES), one_of_schema(TENSOR_DTYPES, "the case's dtype where left out"))
_REQUIRES_GRAD = Read(true_or_false, {"type": "boolean"})
_LAYOUT = Read(one_of(Layout), one_of_schema(Layout, "how it lies in memory"))
_AVOID = Read(
    distinct_list_of(number, "points"),
    {"type": "array", "items": {"type": "number"}, "minItems": 1, "description": "points to keep a margin from"},
)
_CONSTRAINT = Read(one_of(Constraint), one_of_schema(Constraint, "a set that the values lie in"))
_CONSTRAINED = Read(true_or_false, {"type": "boolean", "description": "perturbations stay on the constraint too"})


class TensorModel(BaseModel):
    """An input written as a mapping."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Annotated[tuple[int, ...] | None, _SHAPE] = None
    normal: Annotated[Normal | None, _NORMAL] = None
    uniform: Annotated[Uniform | None, _UNIFORM] = None
    integers: Annotated[Integers | None, _INTEGERS] = None
    bernoulli: Annotated[Bernoulli | None, _BERNOULLI] = None
    linspace: Annotated[Linspace | None, _LINSPACE] = None
    permutation: Annotated[Permutation | None, _PERMUTATION] = None
    values: Annotated[Any, _VALUES] = None
    file: Annotated[str | None, _FILE] = None
    factory: Annotated[str | None, _FACTORY] = None
    args: Annotated[dict[str, Any] | None, _ARGS] = None
    dtype: Annotated[str | None, _DTYPE] = None
    requires_grad: Annotated[bool | None, _REQUIRES_GRAD] = None
    layout: Annotated[Layout, _LAYOUT] = Layout.CONTIGUOUS
    avoid: Annotated[tuple[float, ...], _AVOID] = ()
    constraint: Annotated[Constraint | None, _CONSTRAINT] = None
    constrained: Annotated[bool, _CONSTRAINED] = True
