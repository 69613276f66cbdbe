"""A case that harms its process gets a verdict, and other cases are not affected."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradverify.case import Literal, Normal, TensorInput
from gradverify.result import CaseResult, Verdict
from gradverify.run.pool import LocalPool
from gradverify.run.run_work import run_work
from gradverify.run.state import current_state
from gradverify.run.task import Engine, Task, TaskLost, TaskStarted
from tests.run.making import OPS, SHOWN, case, run
from tests.run.processes import left_over

pytestmark = pytest.mark.slow  # processes that are killed, or hang until they are

# by name: what the message must match
CRASHES = {
    "segfault": "crashed: SIGSEGV (Segmentation fault), last in {place} in segfault; the last it printed:\n"
    "about to touch address 0",
    "abort": "crashed: SIGABRT (Aborted), last in {place} in abort",
    "exit_now": "ended the process with exit code 3",
    "killed": "crashed: SIGKILL (Killed, sent by something else or by the system when memory ran out)",
    "close_all": "closed the file descriptors of its own worker",
    "steal_channel": "closed the file descriptors of its own worker",
    "deep": "crashed: SIGSEGV (Segmentation fault), last in {place} in nested",
}
if sys.version_info >= (3, 12):
    del CRASHES["deep"]  # Python raises RecursionError before its stack overflows
TIMEOUTS = ("hang", "stop")
PASSES = ("flood", "close_streams", "fork", "thread")


@pytest.fixture(scope="module")
def results(engine: Engine) -> dict[str, CaseResult]:
    """Run every faulty case between right ones, in one pool."""
    names = [*CRASHES, *PASSES, "sys_exit", "recurse", "interrupt", "unpicklable", "unprintable", "odd_text"]
    names += ["RaisesInBackward"]
    names += ["memory", "too_large", "child", "daemon", "reads_input", *TIMEOUTS]
    cases = []
    for number, name in enumerate(names):
        limit = 2.0 if name in TIMEOUTS else 20.0  # the traceback is written in the last tenth, also on a busy machine
        cases.append(case(name, "faults.py", timeout=limit))
        cases.append(case("Square", id=f"spec/innocent{number}/cpu", draw_key="spec/innocent"))
    return run(cases, engine)


def test_no_other_case_notices(results: dict[str, CaseResult]) -> None:
    innocent = [result for name, result in results.items() if name.startswith("innocent")]
    alone = {replace(result, seconds=0.0, id="") for result in innocent}
    assert len(alone) == 1
    assert innocent[0].verdict is Verdict.PASS


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_is_named(results: dict[str, CaseResult], name: str) -> None:
    (finding,) = results[name].checks[0].findings
    said = re.sub(rf"{re.escape(SHOWN)}/faults\.py:[0-9]+", "{place}", finding.message)
    assert finding.code == "GV905"
    assert said.startswith(CRASHES[name])
    assert "Fatal Python error" not in said
    assert results[name].verdict is Verdict.ERROR
    assert not results[name].as_expected
    assert results[name].source is None  # a callable that crashes leaves no graph to find backward in


@pytest.mark.skipif(sys.platform != "linux", reason="finds the descriptor in /proc")
def test_a_file_in_the_place_of_the_notepad_is_not_written_to(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine", encoding="utf-8")
    inputs = {"x": TensorInput(origin=Normal(), shape=(3,)), "path": Literal(value=str(tmp_path / "kept"))}
    (finding,) = run([case("steal_notepad", "faults.py", inputs=inputs)], engine)["steal_notepad"].checks[0].findings
    assert (finding.code, finding.message) == ("GV905", "closed the file descriptors of its own worker")
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "mine"


def test_a_line_is_shown_as_before_forward_changed_the_folder(engine: Engine) -> None:
    line = line_of('raise ValueError("moved")')
    place = f"{SHOWN}/faults.py:{line} in move_and_raise"
    (finding,) = run([case("move_and_raise", "faults.py")], engine)["move_and_raise"].checks[0].findings
    assert (finding.code, finding.message) == ("GV902", f"forward raised ValueError: moved ({place})")


@pytest.mark.parametrize("name", TIMEOUTS)
def test_a_case_that_hangs_is_killed_at_its_time_limit(results: dict[str, CaseResult], name: str) -> None:
    line = line_of("ctypes.PyDLL(None).sleep(60)")
    last = (
        f", last in {SHOWN}/faults.py:{line} in hang" if name == "hang" else ""
    )  # a stopped process writes no traceback
    (finding,) = results[name].checks[0].findings
    assert (finding.code, finding.message) == ("GV904", f"timed out after 2 s{last}")
    assert results[name].seconds >= 2.0


@pytest.mark.parametrize("name", PASSES)
def test_what_a_case_leaves_behind_does_not_change_its_verdict(results: dict[str, CaseResult], name: str) -> None:
    assert results[name].verdict is Verdict.PASS, results[name]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("sys_exit", "GV902", "SystemExit: 4"),
        ("recurse", "GV902", "RecursionError"),
        ("interrupt", "GV902", "KeyboardInterrupt"),
        ("unpicklable", "GV902", "Unpicklable: cannot be pickled"),
        ("RaisesInBackward", "GV903", "Unpicklable: cannot be pickled"),
        ("unprintable", "GV902", "text"),
        ("odd_text", "GV902", "odd"),
        ("memory", "GV906", "out of memory"),
        ("too_large", "GV90", "you tried to allocate 144115188075855872 bytes"),
        ("reads_input", "GV902", "EOFError"),
    ],
)
def test_an_exception_is_an_error_with_its_name(
    results: dict[str, CaseResult], name: str, code: str, said: str
) -> None:
    result = results[name]
    assert result.verdict is Verdict.ERROR
    assert said in text_of(result)
    codes = {finding.code for check in result.checks for finding in check.findings} or {result.message[:5]}
    assert all(found.startswith(code) for found in codes)


@pytest.mark.parametrize("name", ["child", "daemon"])
def test_a_child_ends_with_its_case(results: dict[str, CaseResult], name: str) -> None:
    digits = text_of(results[name]).partition("RuntimeError: ")[2]
    process = int("".join(character for character in digits.split()[0] if character.isdigit()))
    assert not left_over([process])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit all the memory that a process takes")
def test_a_case_beyond_its_memory_limit_is_GV906(engine: Engine) -> None:
    said = "; a case may take 256M (--memory)"
    greedy = [case(name, "faults.py") for name in ("hoard", "hoard_in_python", "memory", "large")]
    found = run([*greedy, case("Square")], engine, memory=256 << 20)
    for name in ("hoard", "hoard_in_python", "memory"):
        (finding,) = found[name].checks[0].findings
        assert (finding.code, finding.verdict) == ("GV906", Verdict.ERROR)
        assert finding.message.endswith(said)
        assert found[name].checks[0].message == finding.message
    assert "you tried to allocate 8388608 bytes" in text_of(found["hoard"])
    assert found["large"].verdict is found["Square"].verdict is Verdict.PASS
    (small,) = run([case("large", "faults.py")], engine, memory=32 << 20).values()
    assert small.checks[0].message.endswith("; a case may take 32M (--memory)")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit all the memory that a process takes")
def test_a_memory_limit_may_be_smaller_than_the_block_kept_by_gradverify(alone: LocalPool) -> None:
    alone.renew()  # its worker has not run a case
    found = run([case("Square")], alone, memory=20 << 20)
    assert [result.verdict for result in found.values()] == [Verdict.PASS]


def test_a_killed_server_is_replaced(alone: LocalPool) -> None:
    alone.submit(Task(key="killer", work=case("kills_server", "faults.py"), timeout=20))
    assert alone.next_event() == TaskStarted(key="killer")
    lost = alone.next_event()
    assert isinstance(lost, TaskLost)
    assert lost.detail == "crashed: the process that starts the workers was killed"
    assert run([case("Square")], alone)["Square"].verdict is Verdict.PASS


def test_what_a_case_puts_in_the_place_of_a_function_of_torch_is_not_left_to_the_next(alone: LocalPool) -> None:
    found = run([case("replaces_softplus", "faults.py"), case("softplus", "faults.py")], alone)
    assert {name: result.verdict for name, result in found.items()} == dict.fromkeys(found, Verdict.PASS)


def test_state_is_restored_after_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sees = case("sees", "faults.py", inputs={"x": TensorInput(origin=Normal(), shape=(2,))})
    before = run_work(sees, current_state())
    assert isinstance(before, CaseResult)
    assert "GRADVERIFY" not in os.environ
    run_work(case("pollute", "faults.py"), current_state())
    after = run_work(sees, current_state())
    assert isinstance(after, CaseResult)
    assert text_of(after) == text_of(before)
    assert "'dtype': torch.float32" in text_of(after)


def line_of(text: str) -> int:
    lines = (OPS / "faults.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def text_of(result: CaseResult) -> str:
    findings = [finding.message for check in result.checks for finding in check.findings]
    return "\n".join([result.message, *(check.message for check in result.checks), *findings])
