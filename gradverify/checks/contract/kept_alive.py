"""GV410: tensors on ctx must not keep the graph alive."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.checks.contract.nodes import class_of, custom_nodes, tensors_on_ctx
from gradverify.checks.contract.subject import Subject, new_graph
from gradverify.checks.contract.wording import failure, remark
from gradverify.result import Finding


def findings(subject: Subject) -> Iterator[Finding]:
    """GV410: fails if ctx holds an output, since the output's graph holds ctx; a remark if ctx holds an input."""
    tape = new_graph(subject)
    inputs = {id(leaf) for leaf in tape.leaves}
    for node in custom_nodes(tape):
        cls = class_of(node).__name__
        for name, tensor in tensors_on_ctx(node).items():
            if tensor.grad_fn is node:
                yield failure(
                    "GV410",
                    f"{name} of {cls} holds an output, and the output's graph holds ctx: neither is freed when the "
                    "graph is; use ctx.save_for_backward",
                )
            elif id(tensor) in inputs:
                yield remark(
                    "GV410",
                    f"{name} of {cls} holds an input for as long as the graph lives; ctx.save_for_backward frees it "
                    "after backward and notices when it is modified",
                )
