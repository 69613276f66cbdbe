"""A case that crashes or times out keeps its finished checks; the running check gets the error."""

from __future__ import annotations

import re

import pytest

from gradverify.case import Normal, TensorInput, TorchGradcheck
from gradverify.result import CaseResult, Verdict
from gradverify.run.task import Engine
from tests.run.making import SHOWN, case, run

pytestmark = pytest.mark.slow  # processes that are killed, or hang until they are

ALL = ("gradcheck", "gradgradcheck", "contract")


@pytest.fixture(scope="module")
def results(engine: Engine) -> dict[str, CaseResult]:
    never = {"checks": ALL, "torch_gradcheck": TorchGradcheck.NEVER}
    large = {"x": TensorInput(origin=Normal(), shape=(2_001,))}
    cases = [
        case("WrongThenHangs", "midway.py", timeout=2.0, **never),  # on a busy machine gradcheck alone may take 1 s
        case("WrongThenCrashes", "midway.py", **never),
        case("WrongThenForks", "midway.py", **never),
        case("running", "midway.py", timeout=1.0, inputs=large, **never),
    ]
    return run(cases, engine)


def verdicts(result: CaseResult) -> list[tuple[str, Verdict]]:
    return [(check.check, check.verdict) for check in result.checks]


def test_a_hanging_call_leaves_the_checks_before_it(results: dict[str, CaseResult]) -> None:
    found = results["WrongThenHangs"]
    assert found.verdict is Verdict.FAIL
    assert verdicts(found) == list(zip(ALL, (Verdict.FAIL, Verdict.ERROR, Verdict.SKIP), strict=True))
    first, second, third = found.checks
    assert first.mismatched == 3
    assert [finding.code for finding in second.findings] == ["GV904"]
    assert second.message == f"timed out after 2 s, last in {SHOWN}/midway.py:28 in second"
    assert third.message == f"not run: gradgradcheck {second.message}"
    assert found.source is not None


def test_a_crash_leaves_the_checks_before_it(results: dict[str, CaseResult]) -> None:
    found = results["WrongThenCrashes"]
    assert verdicts(found) == list(zip(ALL, (Verdict.FAIL, Verdict.ERROR, Verdict.SKIP), strict=True))
    crashed = f"crashed: SIGABRT (Aborted), last in {SHOWN}/midway.py:35 in second"
    assert found.checks[0].mismatched == 3
    assert found.checks[1].message == crashed
    assert found.checks[1].findings[0].message == f"{crashed}; the last it printed:\nabout to crash"
    assert found.checks[2].message == f"not run: gradgradcheck {crashed}"


def test_a_forked_copy_of_the_worker_reports_nothing(results: dict[str, CaseResult]) -> None:
    assert verdicts(results["WrongThenForks"])[0] == ("gradcheck", Verdict.FAIL)
    assert "GV905" not in str(results["WrongThenForks"].to_dict())


def test_timeout_between_two_calls_is_reported_by_the_check(results: dict[str, CaseResult]) -> None:
    found = results["running"]
    assert verdicts(found)[0] == ("gradcheck", Verdict.ERROR)
    assert re.fullmatch(r"timed out after [0-9.]+ of 1 s", found.checks[0].message)
    assert [finding.code for finding in found.checks[0].findings] == ["GV904"]
    assert {check.verdict for check in found.checks[1:]} <= {Verdict.ERROR, Verdict.SKIP}  # of the time that is left


def test_a_case_that_hangs_before_its_first_check_is_an_error_as_a_whole(engine: Engine) -> None:
    (found,) = run([case("HangsWhenMade", "midway.py", timeout=0.5)], engine).values()
    assert found.checks == ()
    assert found.message.startswith("GV904: timed out after 0.5 s")
