"""`gradverify explore` and `run --explore`, with an engine that runs nothing."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from explored_specimens import explored, extreme, failure, question
from report_specimens import case

from gradverify.case import Exploring
from gradverify.cli.engine import exploring_of
from gradverify.cli.progress import Tally, now_and_then, progress_text
from gradverify.cli.request import Request
from gradverify.report.to_json import from_json

SAVED = "# Found by gradverify 0.1.0 at inputs near those of pool/Pool/cpu-float64.\n# Changed: stride: 1 (was 2)\n"


def test_exit_codes_are_those_of_run(fake, call) -> None:
    fake.results = [explored(question())]
    good = call("explore", "a.yaml")
    assert (good.exit_code, good.stderr) == (0, "")
    assert "- 1 case explored, 120 tries, 1 question\n" in good.stdout
    fake.results = [explored(failure())]
    bad = call("explore", "a.yaml")
    assert bad.exit_code == 1
    assert "✗ found at try 9 of 120: stride: 1 (was 2)\n" in bad.stdout
    fake.interrupted = True
    assert call("explore", "a.yaml").exit_code == 130


def test_a_defect_of_the_search_is_3_and_keeps_what_was_found(fake, call) -> None:
    message = "gradverify itself raised IndexError: tuple index out of range in gradverify/exploration/dims.py:65"
    for found, word in ((failure(),), "FAIL"), ((question(),), "error"), ((), "error"):
        fake.results = [explored(*found, message=message, broken=True)]
        done = call("explore", "a.yaml")
        assert done.exit_code == 3
        text = " ".join(done.stdout.split())
        assert f"{word} pool/Pool/cpu-float64" in text
        assert text.count(message) == 1
        assert "reproduce: gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64'" in text
        assert ("found at try 9 of 120" in text) is (found == (failure(),))


def test_explore_and_run_make_the_same_request(fake, call) -> None:
    fake.results = [case()]
    options = ["--budget", "20", "--strict", "--save", "found", "--seed", "3", "-j", "2"]
    call("explore", "a.yaml", *options)
    first = fake.request
    call("run", "a.yaml", "--explore", *options)
    assert fake.request == first
    assert first is not None and first.seed == 3
    folder = str(Path("found").absolute())
    assert exploring_of(first) == Exploring(budget=20, strict=True, folder=folder)
    call("explore", "a.yaml")
    assert exploring_of(fake.request) == Exploring()
    call("run", "a.yaml")
    assert exploring_of(fake.request) is None


def test_the_budget_may_stand_at_the_flag(fake, call) -> None:
    fake.results = [case()]
    call("run", "--explore=20", "a.yaml")
    assert exploring_of(fake.request) == Exploring(budget=20)
    assert fake.paths == (Path("a.yaml"),)
    call("run", "--explore", "a.yaml")
    assert exploring_of(fake.request) == Exploring()
    call("run", "--", "--explore=20")
    assert (exploring_of(fake.request), fake.paths) == (None, (Path("--explore=20"),))
    wrong = call("run", "a.yaml", "--explore=many")
    assert wrong.exit_code == 2 and "expected a whole number from 1 on, found 'many'" in wrong.stderr
    unknown = call("explore", "a.yaml", "--explore=20")
    assert unknown.exit_code == 2 and "No such option" in unknown.stderr


def test_defaults_of_the_project_hold_for_explore(fake, call) -> None:
    fake.results = [case()]
    Path("pyproject.toml").write_text("[tool.gradverify]\npaths = ['here']\nseed = 7\n")
    call("explore")
    assert fake.paths == (Path("here"),)
    assert fake.request.seed == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run a.yaml --budget 20", "--budget says how inputs are changed; give --explore too"),
        ("run a.yaml --strict", "--strict says how inputs are changed; give --explore too"),
        ("run a.yaml --save found", "--save says how inputs are changed; give --explore too"),
        ("explore a.yaml --save a.yaml", "--save a.yaml: {here}/a.yaml is not a folder"),
        ("explore a.yaml --save a.yaml/b", "--save a.yaml/b: {here}/a.yaml is not a folder"),
    ],
)
def test_what_cannot_be_meant_is_2(fake, call, words: str, message: str) -> None:
    fake.results = [case()]
    Path("a.yaml").touch()
    done = call(*words.split())
    assert (done.exit_code, done.stderr) == (2, f"gradverify: {message.format(here=Path.cwd())}\n")
    assert fake.ran == []


def test_a_budget_is_at_least_1(fake, call) -> None:
    done = call("explore", "a.yaml", "--budget", "0")
    assert done.exit_code == 2
    assert "expected a whole number from 1 on, found '0'" in done.stderr


def test_the_budget_is_repeated_only_to_explore(fake, call) -> None:
    fake.results = [explored(failure())]
    text = call("explore", "a.yaml", "--budget", "20", "--seed", "3").stdout
    assert "gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64' --seed 3 --budget 20\n" in text


def test_what_fails_is_written_as_a_spec(fake, call) -> None:
    other = failure(number=12, changes=("x: shape [1, 3] (was [2, 6])", "in float32"))
    fake.results = [explored(failure(), other, extreme(), question(spec="function: f\n"))]
    text = call("explore", "a.yaml", "--save", "new/found").stdout
    assert sorted(path.name for path in Path("new/found").iterdir()) == ["pool-stride.yaml", "pool-x.yaml"]
    assert Path("new/found/pool-stride.yaml").read_text() == SAVED + failure().spec
    assert "    as a spec: new/found/pool-stride.yaml\n" in text
    saved = from_json(Path(".gradverify/last.json").read_text()).cases[0].explored
    assert saved is not None
    assert [found.saved for found in saved.discoveries] == [
        "new/found/pool-stride.yaml",
        "new/found/pool-x.yaml",
        "",
        "",
    ]


def test_with_strict_extremes_are_written_too(fake, call) -> None:
    fake.results = [explored(extreme(), strict=True)]
    call("explore", "a.yaml", "--strict", "--save", "found")
    assert [path.name for path in Path("found").iterdir()] == ["pool-x.yaml"]


def test_no_file_is_replaced_and_none_written_twice(fake, call) -> None:
    Path("found").mkdir()
    Path("found/pool-stride.yaml").write_text("mine")
    fake.results = [explored(failure())]
    for _ in range(2):
        text = call("explore", "a.yaml", "--save", "found").stdout
        assert "as a spec: found/pool-stride-2.yaml\n" in text
    fake.results = [explored(failure(spec="function: other.py:f\n"))]
    call("explore", "a.yaml", "--save", "found")
    assert sorted(path.name for path in Path("found").iterdir()) == [
        "pool-stride-2.yaml",
        "pool-stride-3.yaml",
        "pool-stride.yaml",
    ]
    assert Path("found/pool-stride.yaml").read_text() == "mine"


def test_a_case_with_a_name_of_its_own_gives_it_to_the_file(fake, call) -> None:
    fake.results = [
        replace(explored(failure(changes=("x[0, :]: zero",))), id="kernels/pool/overlapping é/cpu-float64"),
        replace(explored(failure(changes=("in float32",))), id="pool/Pool/cpu-float64-sample1"),
    ]
    call("explore", "a.yaml", "--save", "found")
    assert sorted(path.name for path in Path("found").iterdir()) == [
        "pool-in-float32.yaml",
        "pool-overlapping-x-0.yaml",
    ]


def test_what_is_changed_cannot_leave_its_comment(fake, call) -> None:
    fake.results = [explored(failure(changes=("mode: a\nfunction: evil.py:f",)))]
    call("explore", "a.yaml", "--save", "found")
    assert "\nfunction: evil" not in Path("found/pool-mode.yaml").read_text()


def test_what_has_no_spec_is_told(fake, call) -> None:
    fake.results = [explored(failure(spec=""))]
    done = call("explore", "a.yaml", "--save", "found")
    assert "    not written as a spec: YAML has no word for one of its inputs\n" in done.stdout
    assert done.exit_code == 1 and not Path("found").exists()


def test_a_spec_that_cannot_be_written_is_2(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradverify.spec.save.write_whole", full)
    fake.results = [explored(failure())]
    done = call("explore", "a.yaml", "--save", "found")
    assert done.exit_code == 2
    assert "gradverify: could not write a spec into found: No space left on device\n" in done.stderr


def test_last_failed_keeps_what_was_found_until_it_is_explored_again(fake, call) -> None:
    right = case("right/Right/cpu-float64", spec="specs/pool.yaml")
    Path("specs").mkdir()
    Path("specs/pool.yaml").touch()
    fake.results = [explored(failure()), right]
    call("explore", "a.yaml")
    assert json.loads(Path(".gradverify/failed.json").read_text())["cases"][0]["checks"] == ["explore"]
    fake.results = [case("pool/Pool/cpu-float64", spec="specs/pool.yaml"), right]
    for _ in range(2):
        said = call("run", "a.yaml", "--last-failed").stderr
        assert said == "gradverify: --last-failed: 1 case failed at other inputs; --explore tries them again\n"
        assert fake.ran == ["pool/Pool/cpu-float64"]
    fake.results = [explored(), right]
    call("explore", "a.yaml", "--last-failed")
    assert fake.ran == ["pool/Pool/cpu-float64"]
    call("explore", "a.yaml", "--last-failed")
    assert len(fake.ran) == 2


def test_a_known_failure_is_as_expected_until_no_search_finds_it(fake, call) -> None:
    fake.results = [explored(failure())]
    call("explore", "a.yaml", "--write-baseline", "known.yaml")
    assert '    changed: "stride: 1 (was 2)"\n' in Path("known.yaml").read_text()
    known = call("explore", "a.yaml", "--baseline", "known.yaml")
    assert (known.exit_code, known.stderr) == (0, "")
    fake.results = [case("pool/Pool/cpu-float64", spec="specs/pool.yaml")]
    unexplored = call("run", "a.yaml", "--baseline", "known.yaml")
    assert (unexplored.exit_code, unexplored.stderr) == (0, "")
    fake.results = [explored(failure(changes=("size: 3 (was 2)",)))]
    new = call("explore", "a.yaml", "--baseline", "known.yaml")
    assert new.exit_code == 1
    fake.results = [explored()]
    fixed = call("explore", "a.yaml", "--baseline", "known.yaml")
    said = "fixed: pool/Pool/cpu-float64 gradcheck GV101 d output / d x at stride: 1 (was 2)"
    assert (fixed.exit_code, fixed.stderr) == (0, f"gradverify: {said}; its entry in known.yaml can go\n")


def test_inspect_shows_what_was_found(fake, call) -> None:
    fake.results = [explored(failure(), question())]
    call("explore", "a.yaml")
    text = call("inspect").stdout
    assert "  ✗ found at try 9 of 120: stride: 1 (was 2)\n" in text
    assert "  question at try 30: size: 3 (was 2): forward runs" in text


def test_progress_says_that_other_inputs_are_tried() -> None:
    tally = Tally(total=2, running={"a/b": "", "c/d": ""}, trying={"c/d": " (9 tries)"})
    assert progress_text(tally) == "0/2 done, 0 not as expected; running a/b; trying other inputs of c/d (9 tries)"
    written: list[str] = []
    times = itertools.count(0.0, 31.0)
    listener = now_and_then(Tally(total=1), lambda: next(times), written.append)
    listener.started("a/b", "")
    listener.trying("a/b", 0, 0)
    assert written[-1] == "0/1 done, 0 not as expected; trying other inputs of a/b"
    listener.trying("a/b", 1, 1)
    assert written[-1] == "0/1 done, 0 not as expected; trying other inputs of a/b (1 try, 1 failure)"


def test_no_request_means_no_exploring() -> None:
    assert exploring_of(Request()) is None
