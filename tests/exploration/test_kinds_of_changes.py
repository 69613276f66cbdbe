"""Every kind of change finds the mistake that only it shows."""

from __future__ import annotations

import pytest

import gradverify
from tests.exploration.hidden_mistakes import HIDDEN, Hidden

# Tries for what only two changes together show, or a late one; others take at most 40.
LATE = (
    "argument-and-equal-values",
    "argument-and-size",
    "coincident-rows",
    "counts",
    "equal-sizes",
    "infinite-argument",
    "infinite-row",
    "keys-and-values",
    "left-out",
    "more-keys",
    "near-a-size",
    "offsets",
    "one-in-between",
    "optional-mask",
    "optional-mask-of-scores",
    "optional-offsets",
    "optional-state",
    "pairs",
    "positive-constants",
    "size-of-another",
    "two-dimensions",
    "unequal-rows",
)
MORE = dict.fromkeys(LATE, 300)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda hidden: hidden.name)
def test_change_shows_a_mistake_that_the_inputs_hide(hidden: Hidden) -> None:
    assert gradverify.verify(hidden.function, hidden.inputs, checks=("gradcheck",))
    budget = MORE.get(hidden.name, 40)
    found = gradverify.explore(hidden.function, hidden.inputs, checks=("gradcheck",), budget=budget)
    assert found.message == ""
    assert not found
    phrases = [phrase for failure in found.failures for phrase in (*failure.changes, *failure.also_at)]
    assert any(hidden.change in phrase for phrase in phrases), phrases
    for failure in found.failures:
        assert 1 <= failure.number <= found.tries <= budget
        assert [check.check for check in failure.checks] == ["gradcheck"]
