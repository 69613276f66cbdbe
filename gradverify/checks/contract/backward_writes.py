"""GV402 and GV411: a backward leaves everything as it was, and can be asked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from gradverify.checks.contract.nodes import class_of, custom_nodes, saved
from gradverify.checks.contract.passed import differs, snapshot
from gradverify.checks.contract.subject import Subject, answer_of, graph
from gradverify.checks.contract.wording import accusation, differences, raised, remark
from gradverify.core.model.tape import Tape
from gradverify.core.model.tensor_kinds import is_freed
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_AGAIN = ("second", "third", "fourth")  # backwards that are asked for over one graph

_Watched = list[tuple[str, Tensor, Tensor | None]]  # what it is, the tensor, a snapshot of it


def findings(subject: Subject) -> Iterator[Finding]:
    """GV402: backward overwrites nothing. GV411: a second backward over the same graph says the same."""
    tape = graph(subject)
    watched = _watched(subject, tape)
    answer_of(subject, tape, subject.cotangents)
    for name, tensor, before in watched:
        if differs(tensor, before):
            yield accusation("GV402", _told(name, tensor))
    kept = [(name, tensor) for name, tensor, before in watched if before is not None]
    yield from _asked_again(subject, tape, kept)


def asked_again(subject: Subject, tape: Tape) -> Iterator[Finding]:
    """GV411: a graph that has given `subject.answer` once gives it three more times."""
    return _asked_again(subject, tape, [(output.name, output.tensor) for output in tape.outputs])


def _asked_again(subject: Subject, tape: Tape, kept: Iterable[tuple[str, Tensor]]) -> Iterator[Finding]:
    """GV411. `kept` had memory before the first backward: a second one that reads freed memory ends the process."""
    freed = next((name for name, tensor in kept if is_freed(tensor)), "")
    if freed:
        yield remark("GV411", f"a graph serves one backward only: the first one frees the memory of {freed}")
        return
    for number, ordinal in enumerate(_AGAIN, start=1):
        try:
            again = answer_of(subject, tape, subject.cotangents)
        except EvaluationError as error:
            served = "one backward" if number == 1 else f"{number} backwards"
            yield remark("GV411", f"a graph serves {served} only: at the {ordinal}, {raised(error)}")
            return
        claim = f"a {ordinal} backward over the same graph answers differently"
        found = [*differences(subject, "GV411", claim, again, subject.answer)]
        yield from found
        if found:
            return


def _told(name: str, tensor: Tensor) -> str:
    does = f"frees the memory of {name}" if is_freed(tensor) else f"modifies {name} in place"
    return f"backward {does}; whoever else holds it, and the next backward, sees other values"


def _watched(subject: Subject, tape: Tape) -> _Watched:
    named = [(primal.name, leaf) for primal, leaf in zip(subject.primals, tape.leaves, strict=True)]
    named += [(output.name, output.tensor) for output in tape.outputs]
    known = {_place(tensor) for _, tensor in named}
    for node in custom_nodes(tape):
        for number, tensor in enumerate(saved(node)):
            if tensor is not None and _place(tensor) not in known:
                named.append((f"saved tensor {number} of {class_of(node).__name__}", tensor))
    return [(name, tensor, snapshot(tensor)) for name, tensor in named]


def _place(tensor: Tensor) -> int:
    """Return where a tensor's memory begins; tensors without memory of their own, such as sparse ones, by their id."""
    try:
        return tensor.data_ptr() or id(tensor)
    except RuntimeError:
        return id(tensor)
