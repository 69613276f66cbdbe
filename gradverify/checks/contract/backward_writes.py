"""GV402 and GV411: backward modifies nothing, and can run again over the same graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from gradverify.checks.contract.forward_run import contents_of_fixed, differs, snapshot
from gradverify.checks.contract.next_call import fixed_overwritten
from gradverify.checks.contract.nodes import class_of, custom_nodes, saved_tensors
from gradverify.checks.contract.subject import Subject, gradients_of, graph_for_vjp
from gradverify.checks.contract.wording import failure, mismatches, raised, remark
from gradverify.core.model.coordinates import is_freed
from gradverify.core.model.problem import copies_of_fixed, holding
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_AGAIN = ("second", "third", "fourth")  # backwards that are run after the first one

_Watched = list[tuple[str, Tensor, Tensor | None]]  # name, tensor, snapshot of its bytes


def findings(subject: Subject) -> Iterator[Finding]:
    """GV402: backward writes to nothing. GV411: later backwards over the same graph return the same gradient."""
    fixed = copies_of_fixed(subject.problem)
    with holding(subject.problem, fixed):
        tape = graph_for_vjp(subject)
    watched = _watched(subject, tape)
    known = {_address(tensor) for _, tensor, _ in watched}
    contents = contents_of_fixed(subject.problem, fixed)
    # Saved ones are watched already, and what forward has overwritten differs from what was given.
    fixed_before = [
        None if _address(tensor) in known else _contents(tensor, given)
        for tensor, given in zip(fixed, contents, strict=True)
    ]
    gradients_of(subject, tape, subject.cotangents)
    for primal, leaf, gradient in zip(subject.primals, tape.leaves, subject.gradients, strict=True):
        if leaf.grad is not None and bool((gradient != 0).any()):
            name = primal.name
            text = f"backward adds to {name}.grad and returns the gradient by {name} too: .backward() counts it twice"
            yield failure("GV402", text)
    for name, tensor, before in watched:
        if differs(tensor, before):
            yield failure("GV402", _message(name, tensor))
    for number, (tensor, before) in enumerate(zip(fixed, fixed_before, strict=True)):
        if differs(tensor, before):
            yield fixed_overwritten(subject, "GV402", number, tensor)
    kept = [(name, tensor) for name, tensor, before in watched if before is not None]
    yield from _repeated(subject, tape, kept)


def _contents(tensor: Tensor, given: Tensor | None) -> Tensor | None:
    """Return what a tensor holds: `given`, or a snapshot if it has been overwritten since."""
    return snapshot(tensor) if differs(tensor, given) else given


def repeated_backwards(subject: Subject, tape: Tape) -> Iterator[Finding]:
    """GV411: three more backwards over `tape` return `subject.answer` again."""
    return _repeated(subject, tape, [(output.name, output.tensor) for output in tape.outputs])


def _repeated(subject: Subject, tape: Tape, kept: Iterable[tuple[str, Tensor]]) -> Iterator[Finding]:
    """GV411; `kept` are tensors with memory before the first backward.

    No backward is run if memory was freed, because reading it may crash the process.
    """
    freed = next((name for name, tensor in kept if is_freed(tensor)), "")
    if freed:
        yield remark("GV411", f"a graph serves one backward only: the first one frees the memory of {freed}")
        return
    for number, ordinal in enumerate(_AGAIN, start=1):
        try:
            again = gradients_of(subject, tape, subject.cotangents)
        except EvaluationError as error:
            served = "one backward" if number == 1 else f"{number} backwards"
            yield remark("GV411", f"a graph serves {served} only: at the {ordinal}, {raised(error)}")
            return
        claim = f"a {ordinal} backward over the same graph answers differently"
        found = [*mismatches(subject, "GV411", claim, again, subject.gradients)]
        yield from found
        if found:
            return


def _message(name: str, tensor: Tensor) -> str:
    does = f"frees the memory of {name}" if is_freed(tensor) else f"modifies {name} in place"
    return f"backward {does}; whoever else holds it, and the next backward, sees other values"


def _watched(subject: Subject, tape: Tape) -> _Watched:
    named = [(primal.name, leaf) for primal, leaf in zip(subject.primals, tape.leaves, strict=True)]
    named += [(output.name, output.tensor) for output in tape.outputs]
    known = {_address(tensor) for _, tensor in named}
    for node in custom_nodes(tape):
        for number, tensor in enumerate(saved_tensors(node)):
            if tensor is not None and _address(tensor) not in known:
                named.append((f"saved tensor {number} of {class_of(node).__name__}", tensor))
    return [(name, tensor, snapshot(tensor)) for name, tensor in named]


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, or its id if it has no memory of its own, such as a sparse one."""
    try:
        return tensor.data_ptr() or id(tensor)
    except RuntimeError:
        return id(tensor)
