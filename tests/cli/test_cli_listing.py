"""Lines of cases are printed as they finish if stdout is no terminal; write errors of stdout are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_specimens import case, masked, report, skipped

from gradverify.cli import engine, listing
from gradverify.cli.exits import ExitCode
from gradverify.cli.terminal import is_pipe
from gradverify.report.to_json import from_json, to_json
from gradverify.run.options import Outcome

FULL = Path("/dev/full")


def test_a_line_is_there_as_soon_as_its_case_is_finished_and_never_twice(fake, call, monkeypatch) -> None:
    first, second = case("a/one/cpu-float64"), masked()
    fake.results = [first, second]
    seen: list[str] = []

    def run(opened, cases, specs, request, listener, interrupts):
        for result in (second, first):  # in the order of completion
            listener.started(result.id, "")
            listener.finished(result)
            seen.append(sys.stdout.buffer.getvalue().decode())
        return Outcome(report=report(first, second))

    monkeypatch.setattr(engine, "run", run)
    stdout = call("run", "a.yaml").stdout
    assert seen[0].startswith("✗ FAIL   clipped_relu/vector/cpu-float64  ")
    assert seen[1].startswith(f"{seen[0]}✓ pass   a/one/cpu-float64  ")
    assert stdout.startswith(f"{seen[1]}\n✗ FAIL  clipped_relu/vector/cpu-float64  ──")
    assert stdout.count("a/one/cpu-float64") == 1
    assert [one.id for one in from_json(Path(".gradverify/last.json").read_text()).cases] == [first.id, second.id]


def test_lines_stand_in_columns(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    fake.results = [case("a/one/cpu-float64", seconds=12.0), case("a/a_longer_name/cpu-float64")]
    first, second, *_ = call("run", "a.yaml").stdout.splitlines()
    assert (first.index("✓ gradcheck"), len(first)) == (second.index("✓ gradcheck"), len(second))
    assert first.endswith(" 12.0 s")


@pytest.mark.parametrize("drawn", [False, True])
def test_of_many_skips_for_one_reason_three_are_listed(
    fake, call, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    monkeypatch.setattr(listing, "is_terminal", lambda stream: drawn)
    fake.results = [*(skipped(number) for number in range(20)), case("a/one/cpu-float64")]
    few, every = call("run", "a.yaml").stdout, call("run", "a.yaml", "-v").stdout
    assert (few.count("- skip "), every.count("- skip ")) == (3, 20)
    assert "- 20 cases skipped: this machine has no device cuda" in few
    assert ("(-v: all)" in few, "(-v: all)" in every) == (True, False)
    assert "a/one/cpu-float64" in few


def test_quiet_prints_no_lines(fake, call) -> None:
    fake.results = [case()]
    assert call("run", "a.yaml", "-q").stdout == "✓ 1 case as expected: 1 pass in 1.23 s\n"


def test_on_a_terminal_the_lines_come_afterwards(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "is_terminal", lambda stream: True)
    assert listing.usual_listing() is listing.Listing.AFTERWARDS
    assert not is_pipe(sys.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_and_is_2() -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradverify", "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "gradverify: could not write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("explain",)])
def test_help_and_version_too(words: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradverify", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "gradverify: could not write to standard output: No space left on device\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_defect(closed: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(to_json(report(masked())), encoding="utf-8")
    for words, code in (("merge r.json --markdown r.md", 1), ("list nowhere.yaml", 2), ("explain GV101", 0)):
        command = f"{sys.executable} -m gradverify {words} {closed}"
        assert subprocess.run(command, shell=True, cwd=tmp_path, check=False).returncode == code, words
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("## gradverify: ")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_loses_no_report(fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from gradverify.cli.exits import _outcome
    from gradverify.cli.parameters import with_single_options
    from gradverify.cli.run import run

    fake.results = [case(), masked()]
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = _outcome(with_single_options(run), (), {"paths": [Path("a.yaml")], "json": Path("out.json")})
    assert code is ExitCode.USAGE
    assert capsys.readouterr().err == "gradverify: could not write to standard output: No space left on device\n"
    assert len(from_json(Path("out.json").read_text()).cases) == 2
