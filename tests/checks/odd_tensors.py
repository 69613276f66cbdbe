"""Tensors that are not plain and dense, and Functions that use them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._pytree import tree_map

POINT = torch.tensor([0.3, -1.2, 0.7, 2.1], dtype=torch.float64)
_MATRIX = torch.tensor([[1.0, 0, 2, 0], [0, 0, 3, 0], [0, 4, 0, 1]], dtype=torch.float64)
_PIECES = [torch.ones(2, dtype=torch.float64), torch.full((3,), 0.5, dtype=torch.float64)]


class Sorted(Tensor):
    """Has an attribute, which its own methods carry over only through `__torch_function__`."""

    is_sorted: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        source = next((entry for entry in args if isinstance(entry, cls)), None)
        if isinstance(found, cls) and source is not None and "is_sorted" not in vars(found):
            found.is_sorted = source.is_sorted  # AttributeError if it is lost
        return found


class Forgetful(Tensor):
    """Loses its attribute in every method."""

    is_sorted: bool


class Wrapper(Tensor):
    """Keeps its entries in another tensor."""

    @staticmethod
    def __new__(cls, inner: Tensor, label: str) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner: Tensor, label: str) -> None:
        self.inner, self.label = inner, label

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Wrapper({self.label})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        labels: list[str] = []

        def inner(entry: Any) -> Any:
            if isinstance(entry, Wrapper):
                labels.append(entry.label)
                return entry.inner
            return entry

        found = func(*tree_map(inner, args), **tree_map(inner, kwargs or {}))
        return tree_map(lambda entry: cls(entry, labels[0]) if isinstance(entry, Tensor) else entry, found)


class Sealed(Wrapper):
    """A wrapper whose entries cannot be replaced."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default:
            raise ValueError("sealed")
        return super().__torch_dispatch__(func, types, args, kwargs)


class Scaled(Function):
    """x times a number that is read from the other tensor, which is saved and kept on ctx as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, other: Tensor) -> Tensor:
        ctx.save_for_backward(other)
        ctx.other = other
        return x * total(other)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * total(ctx.saved_tensors[0]), None


class WrongScaled(Scaled):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return 1.01 * grad * total(ctx.other), None


class Square(Function):
    """Insists on the class of its input and on the attribute of that class."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Tensor:
        assert type(x) is Tensor or x.is_sorted
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return 2 * tangent * ctx.saved_tensors[0]


def total(other: Any) -> float:
    """Return the sum of a tensor of any kind; AttributeError if a subclass has lost what it knows."""
    if isinstance(other, Wrapper):
        assert other.label == "a"
        return float(other.inner.sum())
    if isinstance(other, Sorted | Forgetful):
        return float(other.as_subclass(Tensor).sum()) * (1.0 if other.is_sorted else 0.0)
    if other.is_nested:
        return float(sum(piece.sum() for piece in other.unbind()))
    dense = other.dequantize() if other.is_quantized else other
    return float((dense if dense.layout is torch.strided else dense.to_dense()).sum())


def attributed(tensor: Tensor, kind: type[Sorted] | type[Forgetful]) -> Tensor:
    """Return a tensor in a class with an attribute."""
    found = tensor.as_subclass(kind)
    found.is_sorted = True
    return found


def quietly(make: Callable[[], Tensor]) -> Tensor:
    """Return what is made, without torch's warnings that some kinds of tensors are new or old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


CONSTANTS: dict[str, Callable[[], Tensor]] = {
    "sparse COO": _MATRIX.to_sparse,
    "uncoalesced": lambda: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 4), dtype=torch.float64),
    "sparse CSR": _MATRIX.to_sparse_csr,
    "sparse BSR": lambda: torch.eye(4, dtype=torch.float64).to_sparse_bsr((2, 2)),
    "sparse COO in float32": lambda: _MATRIX.float().to_sparse(),
    "attribute and __torch_function__": lambda: attributed(torch.tensor([0, 2, 3]), Sorted),
    "attribute only": lambda: attributed(torch.tensor([0, 2, 3]), Forgetful),
    "wrapper": lambda: Wrapper(torch.tensor([0.5, 2.0], dtype=torch.float64), "a"),
    "wrapper in float32": lambda: Wrapper(torch.tensor([0.5, 2.0]), "a"),
    "sealed wrapper": lambda: Sealed(torch.tensor([0.5, 2.0], dtype=torch.float64), "a"),
    "jagged": lambda: torch.nested.nested_tensor(_PIECES, layout=torch.jagged),
    "quantised": lambda: torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.1, 0, torch.qint8),
}
if torch.backends.mkldnn.is_available():
    CONSTANTS["mkldnn"] = lambda: torch.tensor([1.0, 2.0]).to_mkldnn()
