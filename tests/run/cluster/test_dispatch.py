"""Which tasks a slot gets, and what becomes of the tasks of slots that die."""

from __future__ import annotations

import random
from collections import Counter

from gradverify.run.engines.cluster.dispatch import Dispatcher
from gradverify.run.engines.cluster.messages import Numbered
from gradverify.run.task import PackedWork, Task


def task(name: str) -> Task:
    return Task(key=name, work=PackedWork(frame=b""), timeout=1.0)


def made(count: int, nodes: str = "a", gpus: int = 0) -> Dispatcher:
    """Return a dispatcher with tasks t0, t1, … and a slot on each of the nodes, numbered from 0."""
    dispatcher = Dispatcher()
    for number in range(count):
        dispatcher.add(task(f"t{number}"), gpus)
    for number, node in enumerate(nodes):
        dispatcher.open(number, node, gpus, 0.0)
    return dispatcher


def keys(tasks: tuple[Numbered, ...]) -> list[str]:
    return [numbered.task.key for numbered in tasks]


def finish(dispatcher: Dispatcher, slot: int, tasks: tuple[Numbered, ...], seconds: float) -> None:
    for numbered in tasks:
        assert dispatcher.finished(slot, numbered.number, 0.0) is numbered.task
    dispatcher.note_seconds(slot, [seconds] * len(tasks))


def test_small_tasks_travel_by_the_second_and_large_ones_alone() -> None:
    dispatcher = made(1000)
    first = dispatcher.refill(0, 0.0)
    assert keys(first) == ["t0", "t1"]
    finish(dispatcher, 0, first, 0.01)
    batch = dispatcher.refill(0, 0.0)
    assert len(batch) == 100
    finish(dispatcher, 0, batch, 5.0)
    assert len(dispatcher.refill(0, 0.0)) == 1
    assert dispatcher.refill(0, 0.0) == ()


def test_a_slot_is_filled_again_before_it_is_empty() -> None:
    dispatcher = made(1000)
    finish(dispatcher, 0, dispatcher.refill(0, 0.0), 0.01)
    batch = dispatcher.refill(0, 0.0)
    finish(dispatcher, 0, batch[:24], 0.01)
    assert dispatcher.refill(0, 0.0) == ()
    finish(dispatcher, 0, batch[24:25], 0.01)
    assert len(dispatcher.refill(0, 0.0)) == 25


def test_a_slot_holds_more_if_messages_are_rarer() -> None:
    dispatcher = made(1000)
    dispatcher.batch_seconds = 2.0
    finish(dispatcher, 0, dispatcher.refill(0, 0.0), 0.01)
    assert len(dispatcher.refill(0, 0.0)) == 200
    assert dispatcher.overdue(1.5) == ()
    assert dispatcher.overdue(2.1) == (0,)


def test_towards_the_end_every_slot_gets_a_share() -> None:
    dispatcher = made(22, "abcd")
    finish(dispatcher, 0, dispatcher.refill(0, 0.0), 0.001)
    assert [len(dispatcher.refill(slot, 0.0)) for slot in range(4)] == [5, 4, 3, 2]


def test_tasks_behind_one_that_takes_long_go_back_to_the_front() -> None:
    dispatcher = made(10, "ab")
    finish(dispatcher, 0, dispatcher.refill(0, 0.0), 0.1)
    held = dispatcher.refill(0, 0.0)
    assert dispatcher.overdue(1.0) == ()
    assert dispatcher.overdue(1.1) == (0,)
    dispatcher.give_back(0, [numbered.number for numbered in held[1:]])
    assert dispatcher.overdue(1.1) == ()
    assert keys(dispatcher.refill(1, 1.1))[:1] == keys(held[1:2])


def test_tasks_of_a_dead_slot_run_again_alone_and_one_at_a_time_on_a_node() -> None:
    dispatcher = made(6, "abb")
    finish(dispatcher, 0, dispatcher.refill(0, 0.0), 0.1)
    held = dispatcher.refill(0, 0.0)
    assert keys(held) == ["t2", "t3"]
    assert dispatcher.bury(0, 1.0) == (2, ())
    suspect = dispatcher.refill(1, 1.0)
    assert keys(suspect) == ["t2"]
    assert keys(dispatcher.refill(2, 1.0)) == ["t4"]  # the other suspect waits: slot 2 is on the same node
    finish(dispatcher, 1, suspect, 0.1)
    assert keys(dispatcher.refill(1, 1.0)) == ["t3"]


def test_a_slot_with_work_ends_it_before_it_takes_a_suspect() -> None:
    dispatcher = made(3, "ab")
    busy = dispatcher.refill(1, 0.0)
    dispatcher.refill(0, 0.0)
    dispatcher.bury(0, 1.0)
    assert dispatcher.refill(1, 1.0) == ()
    finish(dispatcher, 1, busy, 0.1)
    assert keys(dispatcher.refill(1, 1.0)) == ["t2"]


def test_a_suspect_is_not_sent_to_its_node_that_may_be_dead() -> None:
    dispatcher = made(1, "aa")
    dispatcher.refill(0, 0.0)
    assert dispatcher.bury(0, 1.0) == (1, ())
    assert dispatcher.refill(1, 1.0) == ()
    dispatcher.open(2, "a", 0, 2.0)  # after the death: the node lives, or is there again
    assert keys(dispatcher.refill(2, 2.0)) == ["t0"]


def test_a_task_that_takes_down_two_nodes_is_the_culprit() -> None:
    dispatcher = made(1, "ab")
    dispatcher.refill(0, 0.0)
    dispatcher.bury(0, 1.0)
    dispatcher.refill(1, 1.0)
    again, (culprit,) = dispatcher.bury(1, 2.0)
    assert (again, culprit.task.key, culprit.nodes) == (0, "t0", ("a", "b"))
    assert not dispatcher


def test_tasks_wait_for_slots_with_their_gpus() -> None:
    dispatcher = made(3)
    dispatcher.add(task("gpu"), 1)
    dispatcher.open(7, "a", 1, 0.0)
    assert keys(dispatcher.refill(7, 0.0)) == ["gpu"]
    assert dispatcher.refill(7, 0.0) == ()
    assert (dispatcher.waiting(0), dispatcher.waiting(1), dispatcher.unfinished(1)) == (3, 0, 1)


def test_cancelling_forgets_every_task_but_no_slot() -> None:
    dispatcher = made(5, "ab")
    held = dispatcher.refill(0, 0.0)
    assert dispatcher.cancel() == (0,)
    assert not dispatcher
    assert dispatcher.finished(0, held[0].number, 0.0) is None
    dispatcher.add(task("new"), 0)
    assert keys(dispatcher.refill(0, 0.0)) == ["new"]


def test_every_task_ends_once_however_slots_come_and_die() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        dispatcher = made(30)
        ended: Counter[str] = Counter()
        held: dict[int, list[Numbered]] = {0: []}
        for step in range(5000):
            if not dispatcher:
                break
            now = float(step)
            if not held or chance.random() < 0.05:
                slot = step + 1
                dispatcher.open(slot, chance.choice("abc"), 0, now)
                held[slot] = []
            slot = chance.choice(list(held))
            held[slot] += dispatcher.refill(slot, now)
            if chance.random() < 0.04:
                _, culprits = dispatcher.bury(slot, now)
                ended.update(culprit.task.key for culprit in culprits)
                del held[slot]
            elif held[slot]:
                done = held[slot].pop(0)
                finish(dispatcher, slot, (done,), chance.random() / 10)
                ended[done.task.key] += 1
        assert not dispatcher
        assert ended == Counter(f"t{number}" for number in range(30))
