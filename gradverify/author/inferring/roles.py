"""What the name and the annotation of a parameter say about it. No torch."""

from __future__ import annotations

import inspect
import re
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Kind(StrEnum):
    """What an argument may be."""

    TENSOR = "tensor"
    WEIGHT = "weight"  # a tensor of parameters, often smaller than the others
    BIAS = "bias"  # likewise, with one dimension
    INDICES = "indices"  # a tensor of whole numbers
    LABELS = "labels"  # likewise, one for each row
    MASK = "mask"  # a tensor of booleans
    TENSORS = "tensors"  # a list of tensors
    MODULE = "module"  # something that is called
    FLOAT = "float"
    INT = "int"
    BOOL = "bool"
    TEXT = "text"
    SIZE = "size"
    DTYPE = "dtype"
    DEVICE = "device"
    NONE = "none"
    OBJECT = "object"  # anything else


_NAMES: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(f"(^|_)({pattern})($|_|[0-9])"))
    for kind, pattern in (
        (Kind.MASK, "mask|masks"),
        (Kind.BOOL, "training|train|inplace|causal|is|use|has|with|reverse|keepdim|return|save|needs|do|normalize"),
        (Kind.INT, "num|n|k|heads|groups|stride|padding|dilation|kernel|window|order|degree|steps|bits|chunk|block"),
        (Kind.INT, "dim|axis|size|length|width|height|iter|iters|maxiter|iterations|levels|features|channels|count"),
        (Kind.LABELS, "target|targets|label|labels"),
        (Kind.INDICES, "index|indices|idx|idxs|ids|segments?|rows|cols|perm"),
        (Kind.FLOAT, "eps|epsilon|tol|alpha|slope|clip|clamp|factor|temperature|temp|momentum|lambd|lambda|lam|lr"),
        (Kind.FLOAT, "threshold|margin|smoothing|rate|p|prob|dropout|delta|min|max|lower|upper|low|high|sigma|tau"),
        (Kind.WEIGHT, "weight|weights|w|gamma|kernel|filter|filters|scale"),
        (Kind.BIAS, "bias|b|beta|shift"),
        (Kind.TEXT, "reduction|mode|reduce|method|activation"),
        (Kind.MODULE, "module|fn|func|function|layer|net|model|callable|run"),
    )
)
_SCALARS = MappingProxyType({
    "int": Kind.INT,
    "float": Kind.FLOAT,
    "number": Kind.FLOAT,
    "Scalar": Kind.FLOAT,
    "bool": Kind.BOOL,
    "str": Kind.TEXT,
    "dtype": Kind.DTYPE,
    "device": Kind.DEVICE,
    "Device": Kind.DEVICE,
    "Size": Kind.SIZE,
    "Module": Kind.MODULE,
    "Callable": Kind.MODULE,
    "None": Kind.NONE,
    "NoneType": Kind.NONE,
})  # fmt: skip
_UNKNOWN = ("Any", "object", "", "T")
_TENSORS = re.compile(r"(list|sequence|tuple|iterable)\[.*tensor|tensor\[\]", re.IGNORECASE)
_INTS = re.compile(r"(list|sequence|tuple)\[(int|SymInt)", re.IGNORECASE)


def kind_by_name(name: str) -> Kind | None:
    """Return what a parameter of this name usually is, None for a name that says nothing."""
    return next((kind for kind, pattern in _NAMES if pattern.search(name.lower())), None)


def annotated_kinds(annotation: Any) -> tuple[Kind, ...]:
    """Return the kinds that an annotation allows, () where it says nothing."""
    if annotation is inspect.Parameter.empty:
        return ()
    text = annotation if isinstance(annotation, str) else _text_of(annotation)
    text = re.sub(r"\b(torch|typing|nn|collections\.abc|builtins|numbers)\.", "", text)
    if _TENSORS.search(text):
        return (Kind.TENSORS, *((Kind.NONE,) if _is_optional(text) else ()))
    if "Tensor" in text:
        return (Kind.TENSOR, *((Kind.NONE,) if _is_optional(text) else ()))
    if _INTS.search(text):
        return (Kind.SIZE,)
    words = [word for word in re.split(r"[^\w]+", re.sub(r"\[\[.*?\].*?\]|\bOptional\b|\bUnion\b", " ", text)) if word]
    kinds = [_SCALARS.get(word) for word in words]
    known = tuple(dict.fromkeys(kind for kind in kinds if kind is not None))
    if _is_optional(text) and known:
        known = (*(kind for kind in known if kind is not Kind.NONE), Kind.NONE)
    if known and known != (Kind.NONE,):
        return known
    return () if not words or any(word in _UNKNOWN for word in words) else (Kind.OBJECT,)


def _is_optional(text: str) -> bool:
    return "Optional" in text or "None" in text


def _text_of(annotation: Any) -> str:
    return (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
