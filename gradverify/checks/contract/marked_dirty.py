"""Whether autograd was told that forward overwrites an input that is not differentiated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.autograd import Function

from gradverify.core.model.coordinates import is_freed
from gradverify.interception import intercepted_apply
from gradverify.nested import named_tensors


@contextmanager
def marked_dirty() -> Iterator[list[Tensor]]:
    """Record the inputs that Functions mark dirty in this block: `apply` returns these as they are, and no others."""
    dirty: list[Tensor] = []

    def handle(original: Callable[[], Any], _: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        returned = original()
        kept = {id(entry.tensor) for entry in named_tensors("", returned)}
        dirty.extend(entry.tensor for entry in named_tensors("", (args, kwargs)) if id(entry.tensor) in kept)
        return returned

    with intercepted_apply(handle):
        yield dirty


def is_known_to_change(tensor: Tensor, dirty: Sequence[Tensor]) -> bool:
    """Return True if autograd knows that the tensor changes: it has a graph now, or it was marked dirty."""
    return tensor.grad_fn is not None or any(share_memory(tensor, each) for each in dirty)


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors have the same storage; False if it is empty, freed or cannot be read."""
    if one.numel() == 0 or one.device != other.device or is_freed(one) or is_freed(other):
        return False
    try:
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    except RuntimeError:  # a sparse tensor has no storage
        return False
