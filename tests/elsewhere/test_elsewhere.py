"""On a device that refuses tensors of the CPU, as a GPU does, all is judged as there and little is waited for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch.utils.backend_registration as backends

from gradverify.result import Verdict
from tests.elsewhere.findings import JUDGED
from tests.zoo.catalogue import ZOO

ROOT = Path(__file__).parent.parent.parent
BY_NAME = {specimen.name: specimen for specimen in ZOO}
FEW = 1.25  # times as often as with small tensors the host may wait where they are large
LATE = 300  # seconds

pytestmark = [
    pytest.mark.skipif(
        not hasattr(backends, "_setup_privateuseone_for_python_backend"),
        reason="this torch takes no device from Python",
    ),
    pytest.mark.xdist_group("elsewhere"),  # one process sets up `found`
]


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    """Return what is said there; a device is registered for a whole process, so it has one of its own."""
    command = [sys.executable, "-m", "tests.elsewhere.findings"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LATE, check=False)
    assert run.returncode == 0, run.stderr[-2_000:]
    said: Mapping[str, Any] = json.loads(run.stdout)
    return said


@pytest.mark.slow
def test_right_functions_are_judged_as_the_zoo_expects(found: Mapping[str, Any]) -> None:
    said = found["gradcheck"]
    assert len(said) > 0.75 * len(JUDGED)
    odd = {name: one for name, one in said.items() if one[0] == "raised" or not BY_NAME[name].allows(Verdict(one[0]))}
    assert odd == {}


@pytest.mark.slow
def test_wrong_functions_are_caught(found: Mapping[str, Any]) -> None:
    assert found["wrong"]
    assert {name: one for name, one in found["wrong"].items() if one[0] != "fail"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("check", ["gradgradcheck", "contract"])
def test_no_other_check_is_at_a_loss(check: str, found: Mapping[str, Any]) -> None:
    """Where a function is random or its own second derivative is wrong, it is so here as well."""
    said = {name: one for name, one in found[check].items() if "wrong at order 2" not in BY_NAME[name].tags}
    assert said
    assert {name: one for name, one in said.items() if one[0] in ("raised", "error", "fail")} == {}


@pytest.mark.slow
def test_the_host_waits_no_more_often_for_large_tensors(found: Mapping[str, Any]) -> None:
    assert found["waits"]
    for name, (small, large) in found["waits"].items():
        assert small["verdict"] == large["verdict"] == "pass", name
        assert large["waits"] <= FEW * small["waits"], (name, small, large)


@pytest.mark.slow
def test_the_device_refuses_what_is_on_the_cpu(found: Mapping[str, Any]) -> None:
    """Else nothing above could fail; and it knows when it was waited for."""
    assert found["refused"] == ["add: tensors on elsewhere:0 and on the CPU, of shape (3,)", 2]
