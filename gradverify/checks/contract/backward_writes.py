"""GV402 and GV411: a backward leaves everything as it was, and can be asked again."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.checks.contract.nodes import class_of, custom_nodes, saved
from gradverify.checks.contract.passed import differs
from gradverify.checks.contract.subject import Subject, answer_of, graph
from gradverify.checks.contract.wording import accusation, differences, raised, remark
from gradverify.core.function.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_Watched = list[tuple[str, Tensor, Tensor]]  # what it is, the tensor, its values before


def findings(subject: Subject) -> Iterator[Finding]:
    """GV402: backward overwrites nothing. GV411: a second backward over the same graph says the same."""
    tape = graph(subject)
    watched = _watched(subject, tape)
    answer_of(subject, tape, subject.cotangents)
    for name, tensor, before in watched:
        if differs(tensor, before):
            yield accusation(
                "GV402",
                f"backward modifies {name} in place; whoever else holds it, and the next backward, sees other values",
            )
    yield from _second(subject, tape)


def _second(subject: Subject, tape: Tape) -> Iterator[Finding]:
    try:
        again = answer_of(subject, tape, subject.cotangents)
    except EvaluationError as error:
        yield remark("GV411", f"a graph serves one backward only: at the second, {raised(error)}")
        return
    claim = "a second backward over the same graph answers differently"
    yield from differences(subject, "GV411", claim, again, subject.answer)


def _watched(subject: Subject, tape: Tape) -> _Watched:
    named = [(primal.name, leaf) for primal, leaf in zip(subject.primals, tape.leaves, strict=True)]
    named += [(output.name, output.tensor) for output in tape.outputs]
    known = {tensor.data_ptr() for _, tensor in named}
    for node in custom_nodes(tape):
        for number, tensor in enumerate(saved(node)):
            if tensor is not None and tensor.data_ptr() not in known:
                named.append((f"saved tensor {number} of {class_of(node).__name__}", tensor))
    return [(name, tensor, tensor.detach().clone()) for name, tensor in named]
