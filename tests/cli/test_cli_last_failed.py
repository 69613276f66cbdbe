"""`--last-failed` runs every case that was not as expected when it last ran, in any earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_specimens import case, check, contract, failing_check, masked, second_order, timed_out, undetermined

from gradverify.result import CaseResult, Verdict

FAILURES = Path(".gradverify/failed.json")


def wrong(name: str, spec: str) -> CaseResult:
    """Write the spec of a case that fails, so that the file exists."""
    Path(spec).touch()
    return replace(masked(), id=name, spec=spec)


def test_only_what_failed_is_run_until_it_is_as_expected(fake, call) -> None:
    fake.results = [case("a/one/cpu"), masked(), undetermined()]
    first = call("run", "a.yaml", "--last-failed")
    assert first.stderr == f"gradverify: --last-failed: {FAILURES}: no such file or directory; running all\n"
    assert len(fake.ran) == 3
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == [masked().id, undetermined().id]
    fake.results = [case("a/one/cpu"), case(masked().id)]
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == [masked().id]
    good = call("run", "a.yaml", "--last-failed")
    assert good.stderr == "gradverify: --last-failed: no earlier run left a failure; running all\n"
    assert len(fake.ran) == 2


def test_failures_of_specs_that_a_run_did_not_read_are_kept(fake, call) -> None:
    first, second = wrong("a/one/cpu", "a.yaml"), wrong("b/one/cpu", "b.yaml")
    fake.results = [first, second]
    call("run", ".")
    for now in (first, case("a/one/cpu", spec="a.yaml")):
        fake.results = [now]
        call("run", "a.yaml")
    fake.results = [case("a/one/cpu", spec="a.yaml"), second]
    call("run", ".", "--last-failed")
    assert fake.ran == ["b/one/cpu"]
    other = call("run", ".", "-k", "a/one", "--last-failed")
    said = "nothing that failed in earlier runs (1 case) is here"
    assert (other.stderr, fake.ran) == (f"gradverify: --last-failed: {said}; running all\n", ["a/one/cpu"])


def test_failures_that_were_not_selected_are_kept(fake, call) -> None:
    fake.results = [wrong("a/one/cpu", "a.yaml"), wrong("a/two/cpu", "a.yaml")]
    call("run", "a.yaml")
    fake.results = [case("a/one/cpu", spec="a.yaml"), fake.results[1]]
    call("run", "a.yaml", "-k", "one")
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == ["a/two/cpu"]


def test_a_failure_of_a_check_that_was_left_out_is_kept(fake, call) -> None:
    fake.results = [wrong("a/one/cpu", "a.yaml"), case("a/two/cpu", spec="a.yaml")]
    call("run", "a.yaml")
    fake.results = [case("a/one/cpu", spec="a.yaml", checks=(contract(),)), fake.results[1]]
    call("run", "a.yaml", "--check", "contract")
    call("run", "a.yaml", "--last-failed", "--check", "contract")
    assert fake.ran == ["a/one/cpu"]
    fake.results = [case("a/one/cpu", spec="a.yaml", checks=(check(),)), fake.results[1]]
    call("run", "a.yaml", "--last-failed", "--check", "gradcheck")
    assert fake.ran == ["a/one/cpu"]
    call("run", "a.yaml", "--last-failed")
    assert len(fake.ran) == 2


def test_a_check_that_the_spec_no_longer_asks_for_is_forgotten(fake, call) -> None:
    fake.results = [wrong("a/one/cpu", "a.yaml"), wrong("a/two/cpu", "a.yaml")]
    call("run", "a.yaml")
    fake.results = [case("a/one/cpu", spec="a.yaml", checks=(contract(),)), fake.results[1]]
    call("run", "a.yaml")
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == ["a/two/cpu"]


def test_another_failure_does_not_replace_one_that_was_left_out(fake, call) -> None:
    fake.results = [wrong("a/one/cpu", "a.yaml"), case("a/two/cpu", spec="a.yaml")]
    call("run", "a.yaml")
    raised = replace(failing_check(check="contract"), verdict=Verdict.ERROR)
    for checks in ((raised,), (contract(),)):
        fake.results = [replace(fake.results[0], checks=checks, as_expected=checks == (contract(),)), fake.results[1]]
        call("run", "a.yaml", "--check", "contract")
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == ["a/one/cpu"]


@pytest.mark.parametrize("gone", ["the case", "the spec"])
def test_failures_of_cases_that_no_longer_exist_are_dropped(fake, call, gone: str) -> None:
    fake.results = [wrong("a/one/cpu", "a.yaml"), wrong("b/one/cpu", "b.yaml"), case("c/one/cpu", spec="c.yaml")]
    call("run", ".")
    if gone == "the spec":
        Path("b.yaml").unlink()
        fake.results = [fake.results[0]]
    else:
        fake.results = [fake.results[0], case("b/two/cpu", spec="./b.yaml")]
    call("run", ".")
    assert "a/one/cpu" in FAILURES.read_text(encoding="utf-8")
    assert "b/one/cpu" not in FAILURES.read_text(encoding="utf-8")


def test_options_that_leave_a_case_out_do_not_make_it_gone(fake, call) -> None:
    fake.results = [wrong("a/one/cpu-float64", "a.yaml")]
    call("run", "a.yaml")
    fake.results = [case("a/one/cuda-float64", spec="a.yaml")]
    call("run", "a.yaml", "--device", "cuda")
    fake.results = [wrong("a/one/cpu-float64", "a.yaml"), case("a/two/cpu-float64", spec="a.yaml")]
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == ["a/one/cpu-float64"]


def test_failures_that_fail_fast_did_not_reach_are_kept(fake, call) -> None:
    fake.results = [case("a/one/cpu"), masked(), second_order(), undetermined()]
    call("run", "a.yaml")
    stopped = call("run", "a.yaml", "--last-failed", "-x")
    assert fake.ran == [masked().id, second_order().id, undetermined().id]
    assert "- 2 cases not run (-x)\n✗ 1 of 1 case not as expected" in stopped.stdout
    fake.results = [case("a/one/cpu"), case(masked().id), second_order(), undetermined()]
    call("run", "a.yaml", "--last-failed", "-x")
    assert fake.ran == [masked().id, second_order().id, undetermined().id]
    assert "- 1 case not run (-x)" in call("run", "a.yaml", "--last-failed", "-x").stdout
    assert fake.ran == [second_order().id, undetermined().id]


def test_a_case_not_run_that_never_failed_is_no_failure(fake, call) -> None:
    fake.results = [masked(), case("a/one/cpu")]
    call("run", "a.yaml", "-x")
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == [masked().id]


def test_a_case_that_timed_out_is_run_again(fake, call) -> None:
    fake.results = [timed_out(), case("a/one/cpu")]
    call("run", "a.yaml")
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == [timed_out().id]


@pytest.mark.parametrize("text", ["", "[]", '{"cases": 3}', "\udc80"])
def test_a_file_that_cannot_be_read_runs_all_and_is_written_anew(fake, call, text: str) -> None:
    fake.results = [masked(), case("a/one/cpu")]
    FAILURES.parent.mkdir()
    FAILURES.write_bytes(text.encode("utf-8", "surrogateescape"))
    told = call("run", "a.yaml", "--last-failed")
    assert told.stderr.startswith(f"gradverify: --last-failed: {FAILURES}: ")
    assert len(fake.ran) == 2
    call("run", "a.yaml", "--last-failed")
    assert fake.ran == [masked().id]


def test_an_interrupt_before_anything_ran_changes_nothing(fake, call) -> None:
    fake.results = [masked()]
    call("run", "a.yaml")
    before = FAILURES.read_bytes()
    fake.results = []
    fake.interrupted = True
    call("run", "a.yaml")
    assert FAILURES.read_bytes() == before


def test_a_file_that_cannot_be_written_is_a_warning(fake, call) -> None:
    fake.results = [masked()]
    FAILURES.mkdir(parents=True)
    told = call("run", "a.yaml")
    assert (told.exit_code, told.stderr) == (1, f"gradverify: warning: could not write {FAILURES}: Is a directory\n")
    assert Path(".gradverify/last.json").exists()
