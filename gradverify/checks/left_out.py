"""Tensors that require grad and are not inputs, for example parameters that a function closes over."""

from __future__ import annotations

from torch import Tensor

from gradverify.core.model.tape import Tape, graph_nodes

_SHOWN = 3  # shapes that are named, at most


def left_out(tape: Tape) -> str:
    """Return a remark on leaves of the graph that are not among the leaves of the tape, "" if there are none."""
    own = {id(leaf) for leaf in tape.leaves}
    ends = (getattr(node, "variable", None) for node in graph_nodes(output.tensor for output in tape.outputs))
    found = [leaf for leaf in ends if isinstance(leaf, Tensor) and id(leaf) not in own]
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
