"""`gradverify run`: the request to the engine, the files written, and the exit code."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from report_specimens import case, masked, second_order, skipped

from gradverify.cli import run
from gradverify.cli.shard import part_of
from gradverify.errors import SpecError, Where
from gradverify.report.to_json import from_json, to_json
from gradverify.result import CheckResult, Finding, Shard, Verdict

MISTAKE = SpecError(where=Where(file="a.yaml", line=3, column=5), path="inputs.x", problem="no shape", hint="add one")


def test_all_as_expected_is_0(fake, call) -> None:
    fake.results = [case(), skipped()]
    result = call("run", "a.yaml")
    assert result.exit_code == 0
    assert result.stdout.endswith("✓ 2 cases as expected: 1 pass, 1 skip in 1.23 s\n")
    assert result.stderr == ""
    assert fake.paths == (Path("a.yaml"),)


def test_an_unexpected_case_is_1_and_is_printed(fake, call) -> None:
    fake.results = [case("a/b/cpu-float64"), masked()]
    result = call("run", "a.yaml", "--seed", "3", "--dtype", "float32")
    assert result.exit_code == 1
    assert "cause missing-mask: analytic is not zero where numeric is, for x > 2" in result.stdout
    command = "gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64' --dtype float32 --seed 3\n"
    assert command in result.stdout
    assert "\x1b" not in result.stdout


def test_the_report_is_saved(fake, call) -> None:
    fake.results = [masked()]
    call("run", "a.yaml", "--json", "out.json")
    saved = Path(".gradverify/last.json").read_text(encoding="utf-8")
    assert from_json(saved).cases == (masked(),)
    assert Path("out.json").read_text(encoding="utf-8") == saved
    assert sorted(path.name for path in Path(".gradverify").iterdir()) == [".gitignore", "failed.json", "last.json"]


def test_every_option_reaches_the_engine(fake, call) -> None:
    fake.results = [case(device="cuda:1")]
    words = "run a.yaml --check contract --check gradcheck --device cuda:1 --dtype float32 -j 3 --seed 7 --samples 2"
    words += " --timeout 1.5 --memory 1.5G -x --keep-going --require-device cuda --torch-gradcheck never --elements 5"
    words += " --max-evaluations 9"
    assert call(*words.split()).exit_code == 0
    request = fake.request
    assert (request.checks, request.devices, request.dtypes) == (("contract", "gradcheck"), ("cuda:1",), ("float32",))
    assert (request.workers, request.seed, request.samples, request.timeout) == (3, 7, 2, 1.5)
    assert (request.fail_fast, request.keep_going, request.require_devices) == (True, True, ("cuda",))
    assert (request.torch_gradcheck, request.max_elements, request.max_evaluations) == ("never", 5, 9)
    assert request.memory == 3 << 29


def test_rerun_command_contains_options_that_change_the_outcome(fake, call) -> None:
    fake.results = [case("a/b/cuda-float64", device="cuda", as_expected=False, verdict=Verdict.FAIL)]
    options = "--device cuda --seed 3 --samples 2 --timeout 9 --memory 512M --torch-gradcheck never"
    options += " --max-evaluations 40000 --require-device cuda --no-drafts"
    text = call("run", "a.yaml", *options.split(), "-j", "2", "--elements", "5", "--durations", "1").stdout
    assert f"gradverify run specs/clipped_relu.yaml -k 'a/b/cuda-float64' {options}\n" in text


def test_without_a_path_the_folder_specs_is_taken(fake, call) -> None:
    fake.results = [case()]
    result = call("run")
    assert result.exit_code == 2
    assert result.stderr == (
        "gradverify: nothing to run: name a spec or a folder of specs (without one, ./specs/ is taken);"
        " `gradverify init PACKAGE` writes specs\n"
    )
    Path("specs").mkdir()
    assert call("run").exit_code == 0
    assert fake.paths == (Path("specs"),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-q -v", "-q and -v exclude each other"),
        ("--check gradchek", "--check: there is no gradchek; did you mean gradcheck?"),
        (
            "--dtype double",
            "--dtype: there is no double; did you mean float64?",
        ),
        ("--device gpu", "--device: there is no gpu; known are cpu, cuda, mps, xpu, hpu, mtia"),
        ("--require-device cud", "--require-device: there is no cud; did you mean cuda?"),
        ("--timeout 0", "--timeout 0: expected a number of seconds above 0, and at most 1,000,000"),
        ("--timeout 1e9", "--timeout 1e+09: expected a number of seconds above 0, and at most 1,000,000"),
        ("--timeout nan", "--timeout nan: expected a number of seconds above 0, and at most 1,000,000"),
        ("--memory much", "--memory much: expected a size above 0, as 512M or 2G"),
        ("--memory 0G", "--memory 0G: expected a size above 0, as 512M or 2G"),
        ("--memory 9999999T", "--memory 9999999T: expected at most 1048576T"),
        ("--memory 10X", "--memory 10X: expected a size above 0, as 512M or 2G"),
        ("--memory 1G -j 0", "--memory limits workers, and -j 0 runs without them; give one of the two"),
        ("--shard 3/2", "--shard 3/2: expected I/N, as 1/4, with I from 1 to N"),
        ("--shard 0/2", "--shard 0/2: expected I/N, as 1/4, with I from 1 to N"),
        ("-k 'a", '-k "\'a": column 1: a quote is not closed (substrings with and, or, not, parentheses)'),
        (
            "-k nothing",
            "nothing to run: -k 'nothing' fits no case (1 in all); ids are like clipped_relu/vector/cpu-float64",
        ),
        ("--json .", "cannot write .: it is not a file"),
    ],
)
def test_bad_values_are_2_and_one_line(fake, call, words: str, message: str) -> None:
    fake.results = [case()]
    result = call("run", "a.yaml", *words.split())
    assert result.exit_code == 2
    assert result.stderr == f"gradverify: {message}\n"
    assert result.stdout == ""
    assert fake.ran == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seed x", "Invalid value for '--seed': expected a whole number from 0 on, found 'x'"),
        ("--seed 1.0", "Invalid value for '--seed': expected a whole number from 0 on, found '1.0'"),
        (
            f"--seed {2**63}",
            f"Invalid value for '--seed': expected a whole number from 0 to {2**63 - 1}, found '{2**63}'",
        ),
        ("-j -1", "Invalid value for '-j' / '--jobs': expected a whole number from 0 on, found '-1'"),
        ("--samples 0", "Invalid value for '--samples': expected a whole number from 1 on, found '0'"),
        ("--timeout abc", "Invalid value for '--timeout': expected a number of seconds, found 'abc'"),
        (
            "--torch-gradcheck often",
            "Invalid value for '--torch-gradcheck': expected one of small, always, never, found 'often'",
        ),
        ("--nonsense", "No such option: --nonsense"),
    ],
)
def test_unparsable_values_are_2_with_a_message(fake, call, words: str, message: str) -> None:
    result = call("run", "a.yaml", *words.split())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")
    assert fake.ran == []


def test_a_missing_folder_is_reported_before_the_run(fake, call, tmp_path: Path) -> None:
    fake.results = [case()]
    result = call("run", "a.yaml", "--json", "no/such/out.json")
    assert result.exit_code == 2
    assert result.stderr == (
        f"gradverify: cannot write no/such/out.json: there is no folder {tmp_path}/no/such; make it first\n"
    )
    assert fake.ran == []


def test_mistakes_in_specs_are_2_and_all_printed(fake, call) -> None:
    fake.results, fake.spec_errors = [case()], (MISTAKE, MISTAKE)
    result = call("run", "a.yaml")
    assert result.exit_code == 2
    assert result.stderr == (
        "a.yaml:3:5: inputs.x: no shape (add one)\n" * 2
        + "gradverify: 2 mistakes in specs, nothing was run; --keep-going leaves these files out\n"
    )
    assert fake.ran == []


def test_keep_going_runs_the_rest_and_is_still_2(fake, call) -> None:
    fake.results, fake.spec_errors = [case()], (MISTAKE,)
    result = call("run", "a.yaml", "--keep-going")
    assert result.exit_code == 2
    assert "✓ 1 case as expected" in result.stdout
    assert result.stderr.endswith("gradverify: 1 mistake in specs, see above; the files with mistakes were left out\n")


def test_mistakes_that_only_a_worker_finds_are_2(fake, call) -> None:
    fake.results, fake.run_errors = [case()], (MISTAKE,)
    result = call("run", "a.yaml")
    assert result.exit_code == 2
    assert result.stderr == (
        "a.yaml:3:5: inputs.x: no shape (add one)\ngradverify: 1 mistake in specs, nothing was run\n"
    )
    assert not Path(".gradverify").exists()


def test_no_case_is_2(fake, call) -> None:
    result = call("run", "a.yaml")
    assert result.exit_code == 2
    assert (
        result.stderr == "gradverify: nothing to run: the specs hold no case that --check, --device and --dtype leave\n"
    )


def test_interrupted_is_130_and_what_finished_is_kept(fake, call) -> None:
    fake.results, fake.interrupted = [case(), masked()], True
    result = call("run", "a.yaml")
    assert result.exit_code == 130
    assert "1 of 2 cases not as expected" in result.stdout
    assert result.stderr == "gradverify: interrupted: 2 of 2 cases had finished\n"
    assert Path(".gradverify/last.json").exists()


def test_interrupted_before_anything_had_finished_keeps_the_last_report(fake, call) -> None:
    fake.results = [masked()]
    call("run", "a.yaml")
    fake.run_errors, fake.interrupted = (MISTAKE,), True  # mistakes, so that nothing runs
    result = call("run", "a.yaml", "--json", "out.json")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.endswith("gradverify: interrupted: 0 of 1 case had finished\n")
    assert from_json(Path("out.json").read_text(encoding="utf-8")).cases == ()
    assert from_json(Path(".gradverify/last.json").read_text(encoding="utf-8")).cases == (masked(),)


@pytest.mark.parametrize("step", ["keep", "write_outputs", "present"])
def test_interrupted_at_the_very_end_is_130_and_all_is_there(fake, call, monkeypatch, step: str) -> None:
    fake.results = [case()]
    real = getattr(run, step)

    def interrupted(*args: object) -> object:
        fake.interrupts.note()
        return real(*args)

    monkeypatch.setattr(run, step, interrupted)
    result = call("run", "a.yaml", "--json", "out.json")
    assert result.exit_code == 130
    assert result.stdout.endswith("✓ 1 case as expected: 1 pass in 1.23 s\n")
    assert result.stderr == "gradverify: interrupted: 1 of 1 case had finished\n"
    assert Path("out.json").read_bytes() == Path(".gradverify/last.json").read_bytes()


def test_a_second_interrupt_while_finishing_ends_the_output(fake, call, monkeypatch) -> None:
    fake.results = [case()]

    def tapped_twice(*_: object) -> None:
        for _ in range(2):
            fake.interrupts.note()

    monkeypatch.setattr(run, "present", tapped_twice)
    result = call("run", "a.yaml")
    assert (result.exit_code, result.stderr) == (130, "gradverify: interrupted\n")
    assert Path(".gradverify/last.json").exists()


def test_interrupted_elsewhere_is_130(fake, call) -> None:
    fake.results, fake.raises = [case()], KeyboardInterrupt()
    result = call("run", "a.yaml")
    assert (result.exit_code, result.stderr) == (130, "gradverify: interrupted\n")


def test_a_check_that_a_defect_of_ours_ended_is_3(fake, call) -> None:
    told = "gradverify itself raised IndexError: list index out of range in gradverify/diagnosis/diagnose.py:7"
    finding = Finding(code="GV909", verdict=Verdict.ERROR, message=told)
    ended = CheckResult(check="gradcheck", verdict=Verdict.ERROR, message=told, findings=(finding,))
    for expected in (Verdict.PASS, Verdict.ERROR):
        fake.results = [
            case(checks=(ended,), verdict=Verdict.ERROR, expected=expected, as_expected=expected is Verdict.ERROR)
        ]
        assert call("run", "a.yaml").exit_code == 3


def test_a_defect_of_ours_is_3_and_ready_to_paste(fake, call) -> None:
    fake.results, fake.raises = [case()], RuntimeError("what \x1b[31m now")
    result = call("run", "a.yaml")
    assert result.exit_code == 3
    text = result.stderr
    assert text.startswith("gradverify: this is a defect of gradverify, not of your code or your spec.\n")
    assert "Traceback (most recent call last):" in text
    assert r"RuntimeError: what \x1b[31m now" in text
    assert "\x1b" not in text
    for word in ("gradverify 0.", "torch ", "Python ", "platform: ", "command: gradverify"):
        assert word in text


def test_k_selects(fake, call) -> None:
    fake.results = [case("a/one/cpu-float64"), case("a/two/cpu-float64"), case("a/one/cpu-float64-sample1")]
    call("run", "a.yaml", "-k", "one and not sample1 or TWO")
    assert fake.ran == ["a/one/cpu-float64", "a/two/cpu-float64"]
    call("run", "a.yaml", "-k", "a/one/cpu-float64")
    assert fake.ran == ["a/one/cpu-float64"]


def test_shards_cover_every_case_once_and_do_not_move(fake, call) -> None:
    fake.results = [case(f"a/{number}/cpu-float64") for number in range(40)]
    parts = []
    for number in (1, 2, 3):
        assert call("run", "a.yaml", "--shard", f"{number}/3").exit_code == 0
        parts.append(fake.ran)
    assert sorted(name for part in parts for name in part) == sorted(result.id for result in fake.results)
    assert all(7 <= len(part) <= 19 for part in parts)
    call("run", "a.yaml", "--shard", "2/3", "-k", "a/1")
    assert fake.ran == [name for name in parts[1] if name.startswith("a/1")]
    listed = call("list", "a.yaml", "--shard", "2/3").stdout.splitlines()
    assert [row.split("\t")[0] for row in listed] == parts[1]


def test_a_shard_without_a_case_is_0(fake, call) -> None:
    fake.results = [case()]
    empty = next(f"{n}/2" for n in (1, 2) if not part_of(fake.results, Shard(index=n, of=2)))
    result = call("run", "a.yaml", "--shard", empty, "--json", "out.json")
    assert (result.exit_code, result.stdout) == (0, "✓ 0 cases as expected in 1.23 s\n")
    assert result.stderr == f"gradverify: --shard {empty}: no case is in this part (1 in all)\n"
    assert from_json(Path("out.json").read_text(encoding="utf-8")).cases == ()


def test_the_report_knows_its_shard(fake, call) -> None:
    fake.results = [case()]
    for words, shard in (((), None), (("--shard", "2/3"), {"index": 2, "of": 3})):
        call("run", "a.yaml", "--json", "out.json", *words)
        text = Path("out.json").read_text(encoding="utf-8")
        assert json.loads(text)["shard"] == shard
        assert to_json(from_json(text)) == text


def test_the_slowest_cases_are_listed(fake, call) -> None:
    fake.results = [case("a/one/cpu", seconds=0.25), case("a/two/cpu", seconds=12.0), case("a/three/cpu", seconds=3.0)]
    text = call("run", "a.yaml", "--durations", "2").stdout
    assert text.endswith(
        "\n\nthe slowest 2 cases, 98% of the time of all 3:\n  12.0 s  a/two/cpu\n  3.00 s  a/three/cpu\n\n"
        "✓ 3 cases as expected: 3 pass in 1.23 s\n"
    )
    assert "\n\nthe slowest case:\n  12.0 s  a/two/cpu\n\n" in call("run", "a.yaml", "--durations", "1").stdout


def test_the_memory_limit_is_repeated_as_it_was_given(fake, call) -> None:
    fake.results = [masked()]
    assert " --memory 1536M\n" in call("run", "a.yaml", "--memory", "1.5G").stdout


def test_every_file_and_command_repeats_a_case_as_the_screen_does(fake, call) -> None:
    fake.results = [masked()]
    files = ("--json", "r.json", "--markdown", "r.md", "--junit", "r.xml", "--html", "r.html")
    call("run", "a.yaml", "--memory", "2G", "--seed", "3", *files)
    later = (call("inspect").stdout, call("merge", "r.json").stdout)
    for text in (*later, *(Path(name).read_text(encoding="utf-8") for name in ("r.md", "r.xml", "r.html"))):
        assert "--seed 3 --memory 2G" in text


def test_a_folder_that_cannot_be_written_is_a_warning(fake, call) -> None:
    fake.results = [case()]
    Path(".gradverify").write_text("in the way", encoding="utf-8")
    result = call("run", "a.yaml")
    assert result.exit_code == 0
    assert result.stderr == "gradverify: warning: could not write .gradverify/last.json: File exists\n"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a folder that cannot be written")
def test_missing_permission_is_reported_before_the_run(fake, call, tmp_path: Path) -> None:
    fake.results = [case()]
    closed = tmp_path / "closed"
    closed.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    result = call("run", "a.yaml", "--json", "closed/out.json")
    assert (result.exit_code, result.stderr) == (2, "gradverify: cannot write closed/out.json: permission denied\n")


def test_quiet_and_verbose(fake, call) -> None:
    fake.results = [case("a/one/cpu"), second_order()]
    quiet = call("run", "a.yaml", "-q").stdout
    assert "a/one/cpu" not in quiet
    assert quiet.startswith("✗ FAIL  spectral/filtered/cpu-complex128-sample2")
    assert "12 forward and 5 backward calls" in call("run", "a.yaml", "-v").stdout


def test_only_unexpected_needs_no_rows(fake, call) -> None:
    fake.results = [case()]
    assert call("run", "a.yaml", "-q").stdout == "✓ 1 case as expected: 1 pass in 1.23 s\n"


def test_no_color_and_force_color(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.results = [case()]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[32m✓ pass" in call("run", "a.yaml").stdout
    assert "\x1b" not in call("run", "a.yaml", "--no-color").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in call("run", "a.yaml").stdout


def test_a_required_device_that_is_missing_is_1(fake, call) -> None:
    fake.results = [case(device="cuda", verdict=Verdict.SKIP, as_expected=False, checks=(), message="no device cuda")]
    result = call("run", "a.yaml", "--require-device", "cuda")
    assert result.exit_code == 1
    assert "✗ SKIP" in result.stdout


@pytest.mark.parametrize(("name", "device"), [("cuda", "cpu"), ("cuda:1", "cuda"), ("cuda:1", "cuda:0")])
def test_a_required_device_that_no_case_asks_for_is_2(fake, call, name: str, device: str) -> None:
    fake.results = [case(device=device)]
    result = call("run", "a.yaml", "--require-device", name)
    assert result.exit_code == 2
    assert result.stderr == (
        f"gradverify: --require-device {name}: no case runs on it, all cases are for {device};"
        f" name it under `devices` in a spec, or with --device {name}\n"
    )
    assert fake.ran == []


def test_a_required_device_may_be_of_cases_that_are_not_chosen(fake, call) -> None:
    fake.results = [case("a/one/cuda:0", device="cuda:0"), case("a/two/cpu")]
    assert call("run", "a.yaml", "--require-device", "cuda", "-k", "two").exit_code == 0
    Path("pyproject.toml").write_text("[tool.gradverify]\nrequire_devices = ['mps']\n", encoding="utf-8")
    assert call("run", "a.yaml").exit_code == 0


def test_an_older_file_is_replaced_whole(fake, call) -> None:
    fake.results = [case()]
    Path("out.json").write_text("old " * 10_000, encoding="utf-8")
    Path("link.json").symlink_to("out.json")
    assert call("run", "a.yaml", "--json", "link.json").exit_code == 0
    assert Path("link.json").is_symlink()
    assert json.loads(Path("out.json").read_text(encoding="utf-8"))["summary"]["pass"] == 1
    assert not list(Path().glob(".*.tmp"))


def test_the_report_as_a_page(fake, call) -> None:
    fake.results = [masked()]
    assert call("run", "a.yaml", "--html", "out.html", "--json", "out.json").exit_code == 1
    text = Path("out.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>\n")
    assert "clipped_relu/vector/cpu-float64" in text


def test_two_formats_cannot_share_a_file(fake, call) -> None:
    fake.results = [masked()]
    result = call("run", "a.yaml", "--html", "out", "--json", "./out")
    assert (result.exit_code, result.stderr) == (2, "gradverify: --json and --html both name out\n")


def test_workers_get_ready_while_specs_are_read_and_are_gone_after_a_mistake(fake, call) -> None:
    fake.results = [case("a/one/cpu-float64")]
    assert call("run", "a.yaml", "-j", "3").exit_code == 0
    assert (fake.workers, fake.closed) == (3, True)
    assert fake.workers_ended  # before the engine was closed
    fake.closed, fake.results = None, []
    assert call("run", "a.yaml").exit_code == 2
    assert fake.closed is True
    fake.closed = None
    assert call("run", "a.yaml", "--shard", "9").exit_code == 2
    assert fake.closed is None  # a wrong option starts no engine


def test_time_is_asked_for(fake, call) -> None:
    fake.results = [case()]
    call("run", "a.yaml")
    assert not fake.request.timed
    call("run", "a.yaml", "--time")
    assert fake.request.timed


def test_brief_shows_the_fix_and_no_line_for_each_case(fake, call) -> None:
    fake.results = [case("a/one/cpu"), second_order()]
    shown = call("run", "a.yaml", "--brief")
    assert shown.stdout.startswith("✗ FAIL  spectral/filtered/cpu-complex128-sample2\n")
    assert "\n  reproduce:\n  gradverify run " in shown.stdout
    assert call("run", "a.yaml", "--brief", "-q").exit_code == 2
    assert call("run", "a.yaml", "--brief", "-v").exit_code == 2
