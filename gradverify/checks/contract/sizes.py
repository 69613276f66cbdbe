"""GV413: dimensions of size 1 and 0."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.forward_run import same_outputs
from gradverify.checks.contract.nodes import custom_nodes
from gradverify.checks.contract.subject import Subject, gradients_of, graph_at, new_graph
from gradverify.checks.contract.uninitialised import IN_BACKWARD, first_unwritten
from gradverify.checks.contract.wording import raised, remark
from gradverify.core.model.tape import Tape, graph_nodes
from gradverify.errors import EvaluationError
from gradverify.interception import OperatorMode
from gradverify.result import Finding

_MAX_SIZES = 3  # largest number of different sizes tested
_LONGER = 10  # times the operations of forward at the point: at another size it is broken off after so many
# Names of nodes that compute nothing.
_VIEWS = frozenset({
    "torch::autograd::AccumulateGrad", "Alias", "AsStrided", "Clone", "Contiguous", "Expand", "Narrow", "Permute",
    "ReshapeAlias", "Select", "Slice", "Split", "Squeeze", "T", "ToCopy", "Transpose", "Unbind", "Unsqueeze",
    "UnsafeView", "View",
})  # fmt: skip
_LEAST = 1_000  # operations that it may have in any case


class _Counted(OperatorMode):
    """Counts operations and raises once there are more than `most`."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self.count > self.most:
            raise RuntimeError(f"more than {self.most:,} operations")
        return func(*args, **(kwargs or {}))


def findings(subject: Subject) -> Iterator[Finding]:
    """GV413: if forward accepts a dimension of size 1 or 0, backward does too; fixed sizes are not tested.

    A remark: the inputs have other sizes, and forward may not be meant for these.
    A kernel that does not check its arguments reads out of bounds if these no longer fit. So nothing is tested beside
    fixed indices, nor a size that a fixed argument has or is, nor where torch's operators compute a part of the
    outputs: those of recurrent layers, or of CTC, end the process. An iteration that ends once a mean is small never
    ends if that is the mean of nothing, nan: a forward that goes on for too long is broken off.
    """
    if any(primal.project is not None for primal in subject.primals) or not _is_all_hand_written(subject.tape):
        return
    fixed = [entry.value for entry in subject.problem.bound]
    if any(_is_index(value) for value in fixed):
        return
    kept = {size for value in fixed for size in (value.shape if isinstance(value, Tensor) else (value,))}
    found = dict.fromkeys(size for primal in subject.primals for size in primal.tensor.shape)
    sizes = [size for size in found if size > 1 and size not in kept][:_MAX_SIZES]
    most = max(_LEAST, _LONGER * _operations(subject)) if sizes else 0
    for small in (1, 0):
        for size in sizes:
            what = _trouble(subject, size, small, most)
            if what and _is_free(subject, size, most):
                text = f"dimensions of size {size} have size {small}, which forward accepts"
                yield remark("GV413", f"{what}, where {text}")
                return


def _is_all_hand_written(tape: Tape) -> bool:
    """Return True if the outputs are those of hand-written Functions, up to views and copies."""
    nodes = tuple(graph_nodes(output.tensor for output in tape.outputs))
    own = set(custom_nodes(tape))
    return bool(own) and all(node in own or node.name().partition("Backward")[0] in _VIEWS for node in nodes)


def _is_index(value: float | Tensor) -> bool:
    return isinstance(value, Tensor) and not (
        value.is_floating_point() or value.is_complex() or value.dtype is torch.bool
    )


def _operations(subject: Subject) -> int:
    """Return the number of operations of forward at the point, as far as they can be counted."""
    counted = _Counted(math.inf)
    with suppress(EvaluationError), counted:
        new_graph(subject)
    return counted.count


def _trouble(subject: Subject, size: int, other: int, most: int) -> str:
    """Return what is wrong in backward with dimensions of size `size` changed to `other`, "" if nothing is.

    Without elements a loop over them writes nothing, where at the point it writes everything.
    """
    error = _error(subject, size, other, most)
    if error is not None:
        return raised(error) if error.stage == "backward" else ""
    if other:
        return ""
    with suppress(EvaluationError):
        name = first_unwritten(subject, lambda: _at_size(subject, size, other))  # which ends, as it did before
        if name is not None:
            return f"{IN_BACKWARD} {name}"
    return ""


def _error(subject: Subject, size: int, other: int, most: int) -> EvaluationError | None:
    """Return the error that forward or backward raises with dimensions of size `size` changed to `other`, else None.

    Forward has at most so many operations. Backward runs only if all outputs are finite, and have elements if the
    inputs do: there is nothing to differentiate where broadcasting with an empty slice leaves an empty output.
    """
    try:
        with _Counted(most):
            tape = _at_size(subject, size, other)
        if tape.outputs and _finite(tape) and (_has_elements(tape) or _is_empty(tape)):
            gradients_of(subject, tape, [torch.ones_like(output.tensor) for output in tape.outputs])
    except EvaluationError as error:
        return error
    return None


def _finite(tape: Tape) -> bool:
    return all(bool(output.tensor.isfinite().all()) for output in tape.outputs)


def _has_elements(tape: Tape) -> bool:
    return any(output.tensor.numel() for output in tape.outputs)


def _is_empty(tape: Tape) -> bool:
    """Return True if some input has no elements."""
    return not all(leaf.numel() for leaf in tape.leaves)


def _is_free(subject: Subject, size: int, most: int) -> bool:
    """Return True if forward and backward both work at another size above 1, and forward at the next larger one.

    Forward may accept size 1 although the size is fixed: a constant broadcasts, or `zip` stops at the shorter list.
    Then backward raises at other sizes too, or forward ignores the added entries. A smaller size may fit by accident:
    8 and 9 numbers have equally many frequencies, and 10 have more.
    """
    larger = _error(subject, size, size + 1, most)
    if size > 2:
        return (larger is None or larger.stage == "backward") and _error(subject, size, size - 1, most) is None
    return larger is None and not _ignores_more(subject, size)


def _ignores_more(subject: Subject, size: int) -> bool:
    """Return True if the outputs are unchanged when dimensions of this size get one more entry."""
    return same_outputs(subject, _at_size(subject, size, size + 1), subject.tape)


def _at_size(subject: Subject, size: int, other: int) -> Tape:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as that a mean is of nothing: nobody has asked for this size
        return graph_at(subject, [_resized(primal.tensor, size, other) for primal in subject.primals])


def _resized(tensor: Tensor, size: int, other: int) -> Tensor:
    """Return the tensor with each dimension of size `size` cut, or repeated periodically, to size `other`."""
    places = torch.arange(other, device=tensor.device) % size
    for dimension, found in enumerate(tensor.shape):
        if found == size:
            tensor = tensor.index_select(dimension, places)
    return tensor.contiguous()
