"""Values are pickled without asking for their fields each time, and are the same afterwards."""

from __future__ import annotations

import copy
import pickle
from dataclasses import is_dataclass
from types import ModuleType

import pytest

from gradverify import case as cases
from gradverify import result, usage
from gradverify.run import task
from gradverify.run.engines.cluster import messages
from gradverify.run.framing import rebuilt
from gradverify.run.outcome import could_not_run
from gradverify.run.quick_pickle import field_names
from tests.run.making import case


@pytest.mark.parametrize(
    "value", [case("Square"), could_not_run(case("Square"), "GV902", "raised"), task.DeviceQuery()]
)
def test_values_are_the_same_afterwards(value: object) -> None:
    done = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    assert pickle.loads(done) == rebuilt(done) == copy.deepcopy(value) == value
    assert type(rebuilt(done)) is type(value)


@pytest.mark.parametrize("module", [cases, result, usage, task, messages])
def test_no_value_that_travels_is_pickled_slowly(module: ModuleType) -> None:
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and is_dataclass(kind)]
    assert kinds
    for kind in kinds:
        assert kind.__setstate__.__name__ != "_dataclass_setstate", kind  # type: ignore[attr-defined]
        assert kind.__getstate__.__name__ != "_dataclass_getstate", kind


def test_names_of_fields_are_in_order() -> None:
    assert field_names(messages.Numbered) == ("number", "task")
