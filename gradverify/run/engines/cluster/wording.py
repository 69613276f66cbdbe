"""The sentences about nodes that die, and about tasks that no node can run."""

from __future__ import annotations

from gradverify.run.engines.cluster.dispatch import Culprit
from gradverify.run.task import EngineNote, Loss, TaskLost


def blamed(culprit: Culprit) -> TaskLost:
    """Return the event of a task that took down nodes."""
    where = " and ".join(culprit.nodes)
    detail = (
        f"took down {len(culprit.nodes)} nodes of the cluster that it ran on, {where}: each time, the node or Ray's"
        " process on it died; it is not run again. Run it alone with --engine local to see what it does, or give it"
        " less memory with --memory"
    )
    return TaskLost(key=culprit.task.key, loss=Loss.CRASH, detail=detail)


def note_of_death(node: str, again: int) -> EngineNote:
    """Return the note that a node died, and how many tasks run again."""
    tasks = "a task runs" if again == 1 else f"{again:,} tasks run"
    return EngineNote(text=f"node {node} of the cluster died, or Ray's process on it; {tasks} again elsewhere")


def not_run(gpus: int, reason: str) -> str:
    """Return why a task was not run: for a reason of Ray's, or "" if there is no node with so many GPUs."""
    if reason:
        return f"was not run: Ray could not start a process for it: {reason}"
    what = "a CPU" if not gpus else "a GPU" if gpus == 1 else f"{gpus} GPUs"
    return f"was not run: no node with {what} is left in the cluster"
