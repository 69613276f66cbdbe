"""GV401 and GV412: inputs that forward overwrites, and outputs that share memory with an input."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.checks.contract.forward_run import ForwardRun, differs, run_forward
from gradverify.checks.contract.marked_dirty import share_memory
from gradverify.checks.contract.next_call import fixed_overwritten
from gradverify.checks.contract.subject import Subject
from gradverify.checks.contract.wording import failure, remark
from gradverify.core.model.coordinates import is_freed
from gradverify.result import Finding


def findings(subject: Subject) -> Iterator[Finding]:
    """GV401: an input that forward overwrites is marked dirty. GV412: an output in an input's memory is its view."""
    run = run_forward(subject)
    for number in run.modified:
        yield fixed_overwritten(subject, "GV401", number, run.fixed[number])
    if any(primal.project is not None for primal in subject.primals):
        return  # forward gets the projected tensor, not the one compared here
    overwritten = []
    for primal, tensor, before, node in zip(subject.primals, run.tensors, run.before, run.nodes, strict=True):
        if differs(tensor, before) and tensor.grad_fn is node:
            overwritten.append(primal.name)
            yield failure("GV401", _message(primal.name, tensor), wrt=primal.name)
    yield from _views(subject, run, overwritten)


def _message(name: str, tensor: Tensor) -> str:
    if is_freed(tensor):
        return f"forward frees the memory of {name}, which the caller still holds: keep it, or free a clone"
    return f"forward modifies {name} in place and does not say so: ctx.mark_dirty({name}), or work on a clone"


def _views(subject: Subject, run: ForwardRun, overwritten: list[str]) -> Iterator[Finding]:
    for primal, tensor, node in zip(subject.primals, run.tensors, run.nodes, strict=True):
        if primal.name in overwritten or tensor.grad_fn is not node:
            continue  # marked dirty: the output is the input
        for output in run.outputs:
            tracked = output.tensor is tensor or output.tensor._is_view()
            if not tracked and share_memory(output.tensor, tensor):
                yield remark(
                    "GV412",
                    f"{output.name} shares its memory with {primal.name} and autograd does not know: writing into one "
                    "changes the other; return a view made by torch, or a clone",
                    of=output.name,
                    wrt=primal.name,
                )
