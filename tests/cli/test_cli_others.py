"""`gradverify inspect`, `list`, `schema` and `--version`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_specimens import case, crashed, masked, report, second_order, timed_out, undetermined

from gradverify import __version__
from gradverify.report.to_json import to_json


@pytest.fixture
def saved(fake) -> Path:
    path = Path(".gradverify/last.json")
    path.parent.mkdir()
    path.write_text(to_json(report(case("a/good/cpu"), masked(), second_order(), undetermined())), encoding="utf-8")
    return path


def test_inspect_shows_every_case_with_elements(call, saved) -> None:
    result = call("inspect")
    assert result.exit_code == 0
    heads = [row for row in result.stdout.splitlines() if row[:1] in "✓✗?" and row]
    assert [row.split()[2] for row in heads] == [masked().id, second_order().id, undetermined().id]


def test_inspect_shows_what_has_no_elements_too_worst_first(call) -> None:
    cases = (case("a/good/cpu"), undetermined(), timed_out(), crashed(), second_order(), masked())
    Path("r.json").write_text(to_json(report(*(replace(one, rerun=("--seed", "7")) for one in cases))))
    stdout = call("inspect", "--report", "r.json").stdout
    heads = [row for row in stdout.splitlines() if row[:1] in "✓✗?!" and row]
    found = [next(word for word in row.split() if "/" in word) for row in heads]
    assert found == [one.id for one in (masked(), second_order(), timed_out(), crashed(), undetermined())]
    assert "  no answer within 60 s\n" in stdout
    assert "GV902  forward raised ValueError" in stdout
    assert "  specs/steps.yaml:12, ops/clipped_relu.py:ClippedReLUFunction, backward at\n" in stdout
    assert stdout.count("--seed 7") == 5


@pytest.mark.parametrize("name", ["steps/noisy/cpu-float64", "noisy", "steps/*"])
def test_inspect_by_id_part_and_pattern(call, saved, name: str) -> None:
    result = call("inspect", name)
    assert result.exit_code == 0
    assert result.stdout.startswith("? inconclusive  steps/noisy/cpu-float64")
    assert "clipped" not in result.stdout.splitlines()[0]


def test_a_report_without_permission_is_no_defect(call, saved, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = os.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).startswith((".gradverify", "specs")):
            raise PermissionError(13, "Permission denied", str(path))
        return looked_at(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(Path, "read_text", lambda path, **_: stat(path))
    result = call("inspect")
    assert (result.exit_code, result.stderr) == (2, "gradverify: .gradverify/last.json: permission denied\n")
    for command in ("run", "list"):
        result = call(command)
        assert (result.exit_code, result.stderr.partition(":")[0]) == (2, "gradverify")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="elsewhere a folder that is in use cannot be removed")
@pytest.mark.parametrize(
    "words", ["run", "run {0}/a.yaml", "list", "merge {0}/a.json --json b.json", "inspect --report {0}/a.json"]
)
def test_a_current_folder_that_is_gone_is_no_defect(tmp_path: Path, words: str) -> None:
    (tmp_path / "gone").mkdir()
    command = shlex.join([sys.executable, "-m", "gradverify", *words.format(tmp_path).split()])
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    script = f"cd {shlex.quote(str(tmp_path / 'gone'))} && rmdir ../gone && exec {command}"
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment)
    told = [row for row in ran.stderr.splitlines() if row.startswith("gradverify: ")]
    assert (ran.returncode, len(told), ran.stdout) == (2, 1, "")
    assert "defect" not in ran.stderr


def test_inspect_worst_and_all(call, saved) -> None:
    few = call("inspect", "spectral", "--worst", "2").stdout
    assert few.count("grad z.imag[0,11]") < call("inspect", "spectral", "--all").stdout.count("grad z.imag[0,11]")
    assert "the worst 2 of 20,000" in few


def test_inspect_all_says_what_was_not_saved(call, saved) -> None:
    text = call("inspect", "spectral", "--all").stdout
    assert "the worst 12 of 20,000, more with gradverify run --elements 20000" in text


def test_inspect_heatmap(call, saved) -> None:
    text = call("inspect", "vector", "--heatmap").stdout
    assert "analytic, numeric: sign and size, 9 = 1" in text


def test_inspect_of_a_good_case(call, saved) -> None:
    result = call("inspect", "a/good/cpu")
    assert result.exit_code == 0
    assert "no finding: there are no elements to look at" in result.stdout


def test_inspect_of_nothing(call, saved) -> None:
    result = call("inspect", "nosy")
    assert result.exit_code == 2
    assert result.stderr == "gradverify: no case 'nosy' among the 4 of this report; near: steps/noisy/cpu-float64\n"


def test_inspect_names_what_is_near(call, saved) -> None:
    assert "near: steps/noisy/cpu-float64" in call("inspect", "steps/nosy").stderr


def test_inspect_without_a_run(call) -> None:
    result = call("inspect")
    assert result.exit_code == 2
    assert result.stderr == (
        "gradverify: there is no .gradverify/last.json: `gradverify run` makes it; "
        "or name a report with --report FILE\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"\xff", "not UTF-8 text"),
        (b"[]", "not a report of gradverify: `schema_version` is missing"),
    ],
)
def test_inspect_of_another_file(call, content: bytes, message: str) -> None:
    Path("other.json").write_bytes(content)
    result = call("inspect", "--report", "other.json")
    assert (result.exit_code, result.stderr) == (2, f"gradverify: other.json: {message}\n")


def test_inspect_of_a_folder(call) -> None:
    result = call("inspect", "--report", ".")
    assert (result.exit_code, result.stderr) == (2, "gradverify: .: is a directory\n")


def test_inspect_of_a_good_run(call) -> None:
    Path("good.json").write_text(to_json(report(case())), encoding="utf-8")
    result = call("inspect", "--report", "good.json")
    assert (result.exit_code, result.stdout) == (0, "nothing to look at: 1 case as expected\n")


def test_list_through_a_pipe_is_one_id_per_line(fake, call) -> None:
    fake.results = [case("a/one/cpu-float64"), case("a/two/cpu-float64")]
    result = call("list", "a.yaml")
    function, checks = "ops/clipped_relu.py:ClippedReLUFunction", "gradcheck,gradgradcheck,contract"
    assert result.exit_code == 0
    assert result.stdout == "".join(
        f"a/{name}/cpu-float64\t{function}\t{checks}\tcpu\tfloat64\n" for name in ("one", "two")
    )
    assert call("list", "a.yaml", "-k", "two").stdout.startswith("a/two/cpu-float64\t")
    assert call("list", "a.yaml", "-k", "two").stdout.count("\n") == 1


def test_list_on_a_terminal_is_a_table(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradverify.cli import list as list_command

    fake.results = [case("a/one/cpu-float64")]
    monkeypatch.setattr(list_command, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "140")
    function, checks = "ops/clipped_relu.py:ClippedReLUFunction", "gradcheck,gradgradcheck,contract"
    assert call("list", "a.yaml").stdout.splitlines() == [
        f"case               {'function':{len(function)}}  {'checks':{len(checks)}}  device  dtype",
        f"a/one/cpu-float64  {function}  {checks}  cpu     float64",
        "1 case",
    ]
    monkeypatch.setenv("COLUMNS", "80")
    assert call("list", "a.yaml").stdout.splitlines() == ["a/one/cpu-float64", f"  {function}  {checks}", "1 case"]
    monkeypatch.setenv("COLUMNS", "60")
    assert call("list", "a.yaml").stdout.splitlines() == [
        "a/one/cpu-float64",
        f"  {function}",
        f"  {checks}",
        "1 case",
    ]


def test_schema(call) -> None:
    assert json.loads(call("schema").stdout) == {"type": "object"}


def test_version(call) -> None:
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"gradverify {__version__}\n")


@pytest.mark.parametrize("command", ["run", "inspect", "list", "schema"])
def test_help(call, command: str) -> None:
    assert call(command, "--help").exit_code == 0
    assert command in call("-h").stdout


def test_an_unknown_command_is_2(call) -> None:
    assert call("verify").exit_code == 2
