"""References of cases, and workers in which Triton's interpreter is switched on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradverify.result import Verdict
from gradverify.run.task import Engine
from tests.run.making import case, run, target


@pytest.mark.slow
def test_interpreted_cases_have_workers_of_their_own(engine: Engine) -> None:
    checked = case(
        "scaled", "interpreted.py", checks=("reference",), reference=target("plain", "interpreted.py"), dtype="float32"
    )
    on = [replace(checked, id=f"spec/on{number}/cpu", interpret=True) for number in range(2)]
    off = [replace(checked, id=f"spec/off{number}/cpu") for number in range(2)]
    found = run([on[0], off[0], on[1], off[1]], engine)
    verdicts = {name: result.verdict for name, result in found.items()}
    assert verdicts == {"on0": Verdict.PASS, "off0": Verdict.FAIL, "on1": Verdict.PASS, "off1": Verdict.FAIL}
    assert found["off0"].checks[0].findings[0].code == "GV701"
