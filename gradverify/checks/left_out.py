"""Tensors that require grad and are no inputs: parameters that a function closes over, say."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gradverify.core.function.tape import Tape


def left_out(tape: Tape) -> str:
    """Return a remark on leaves of the graph that are not among the tape's own, "" where there are none."""
    own = {id(leaf) for leaf in tape.leaves}
    found = [leaf for leaf in _leaves(tape) if id(leaf) not in own]
    if not found:
        return ""
    shapes = ", ".join(str(list(leaf.shape)) for leaf in found[:_SHOWN])
    if len(found) == 1:
        return f"a tensor of shape {shapes} requires grad and is no input: the gradient by it was not judged"
    more = ", …" if len(found) > _SHOWN else ""
    return (
        f"{len(found)} tensors of shapes {shapes}{more} require grad and are no inputs: the gradients by them were not"
        " judged"
    )


_SHOWN = 3


def _leaves(tape: Tape) -> list[Tensor]:
    """Return the tensors that the graph ends in, in the order in which they are met."""
    pending: list[Any] = [output.tensor.grad_fn for output in tape.outputs if output.tensor.grad_fn is not None]
    seen = set(pending)
    found: list[Tensor] = []
    while pending:
        node = pending.pop()
        if isinstance(getattr(node, "variable", None), Tensor):
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return found
