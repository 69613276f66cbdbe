"""`gradverify merge`: the parts of one run become one report; other files are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_specimens import case, masked, report, second_order, skipped, undetermined

from gradverify.report.to_json import from_json, to_json
from gradverify.result import CaseResult, NotRun, Report, Shard, Stop


def write(name: str, *cases: CaseResult, **changes: object) -> str:
    Path(name).write_text(to_json(replace(report(*cases), **changes)), encoding="utf-8")
    return name


def merged(name: str = "out.json") -> Report:
    return from_json(Path(name).read_text(encoding="utf-8"))


def test_parts_become_one_report(fake, call) -> None:
    files = [write("a.json", masked(), skipped()), write("b.json", case("z/ok/cpu-float64")), write("c.json")]
    result = call("merge", *files, "--json", "out.json")
    assert result.exit_code == 1
    assert "cause missing-mask" in result.stdout
    assert result.stdout.endswith("✗ 1 of 3 cases not as expected: 1 fail; as expected: 1 pass, 1 skip in 3.70 s\n"), (
        result.stdout
    )
    assert result.stderr == ""
    found = merged()
    assert {entry.id for entry in found.cases} == {masked().id, skipped().id, "z/ok/cpu-float64"}
    assert (found.summary.cases, found.summary.unexpected, found.summary.skipped) == (3, 1, 1)
    assert found.environment == report().environment
    assert masked().id in call("inspect").stdout


def test_parts_become_one_page(fake, call) -> None:
    files = [write("a.json", masked()), write("b.json", case("z/ok/cpu-float64"))]
    assert call("merge", *files, "--html", "out.html").exit_code == 1
    assert "z/ok/cpu-float64" in Path("out.html").read_text(encoding="utf-8")


def test_the_order_of_the_files_does_not_matter(fake, call) -> None:
    first, second = write("a.json", masked(), undetermined()), write("b.json", second_order(), skipped())
    call("merge", first, second, "--json", "one.json")
    call("merge", second, first, "--json", "two.json")
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_all_as_expected_is_0(fake, call) -> None:
    result = call("merge", write("a.json", case("a/one/cpu")), write("b.json", case("a/two/cpu")), "-q")
    assert (result.exit_code, result.stdout) == (0, "✓ 2 cases as expected: 2 pass in 2.47 s\n")


@pytest.mark.parametrize(("why", "exit_code"), [(Stop.INTERRUPT, 1), (Stop.FAIL_FAST, 0)])
def test_merging_an_interrupted_part_is_incomplete(fake, call, why: Stop, exit_code: int) -> None:
    """With -x, cases that were not run are expected: the exit code stays 0."""
    left = (NotRun(id="a/two/cpu", why=why), NotRun(id="a/three/cpu", why=why))
    files = [write("a.json", case("a/one/cpu"), not_run=left), write("b.json", case("b/one/cpu"))]
    outputs = ["--markdown", "out.md", "--html", "out.html"]
    result = call("merge", *files, "-q", *outputs)
    said = "2 cases not run (interrupted)"
    assert (result.exit_code, result.stdout.startswith(f"✗ {said}; 2 cases as expected")) == (
        exit_code,
        bool(exit_code),
    )
    assert [said in Path(name).read_text(encoding="utf-8") for name in outputs[1::2]] == [bool(exit_code)] * 2


def test_what_differs_between_machines_is_all_named(fake, call) -> None:
    here = report().environment
    there = replace(here, torch="2.99.0", devices=("cpu", "cuda:0 H"))
    call(
        "merge", write("a.json", case("a/one/cpu")), write("b.json", masked(), environment=there), "--json", "out.json"
    )
    assert merged().environment.torch == f"{here.torch}, 2.99.0"
    assert set(merged().environment.devices) == {*here.devices, *there.devices}


def test_the_slowest_of_all_parts(fake, call) -> None:
    files = [write("a.json", case("a/one/cpu", seconds=9.0)), write("b.json", case("a/two/cpu", seconds=1.0))]
    assert "the slowest case:\n  9.00 s  a/one/cpu\n" in call("merge", *files, "--durations", "1").stdout


def test_a_case_in_two_parts_is_refused(fake, call) -> None:
    result = call("merge", write("a.json", masked()), write("b.json", masked()), "--json", "out.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"gradverify: each case may be in one report only: {masked().id} is in a.json and in b.json\n"
    )
    assert not Path("out.json").exists()


def test_many_duplicates_are_counted(fake, call) -> None:
    cases = [case(f"a/{number}/cpu") for number in range(5)]
    result = call("merge", write("a.json", *cases), "a.json")
    assert result.stderr.endswith("a/2/cpu is in a.json and in a.json; so are 2 more\n")


def test_another_schema_version_is_refused(fake, call) -> None:
    write("a.json", masked())
    plain = json.loads(Path("a.json").read_text(encoding="utf-8"))
    Path("b.json").write_text(json.dumps(plain | {"schema_version": 2}), encoding="utf-8")
    result = call("merge", "a.json", "b.json")
    assert result.exit_code == 2
    assert result.stderr == "gradverify: b.json: schema_version is 2, this gradverify reads 1\n"


def test_different_seeds_are_refused(fake, call) -> None:
    seeded = replace(report().environment, seed=7)
    result = call("merge", write("a.json", case("a/one/cpu")), write("b.json", masked(), environment=seeded))
    assert result.exit_code == 2
    assert result.stderr == (
        "gradverify: these are not parts of one run: a.json ran without --seed and b.json ran with --seed 7\n"
    )


def shard(index: int, of: int, name: str = "a") -> str:
    """Write the report of one shard with one case."""
    file = f"{name}-{index}-of-{of}.json"
    return write(file, case(f"{name}/{index}-of-{of}/cpu"), shard=Shard(index=index, of=of))


def test_all_shards_are_a_whole(fake, call) -> None:
    result = call("merge", shard(2, 2), shard(1, 2), "-q", "--json", "out.json")
    assert (result.exit_code, result.stdout) == (0, "✓ 2 cases as expected: 2 pass in 2.47 s\n")
    assert (merged().shard, merged().missing_shards) == (None, ())


@pytest.mark.parametrize(
    ("here", "of", "missing"),
    [
        ((2,), 2, "shard 1/2 is missing"),
        ((2, 4), 4, "shards 1/4 and 3/4 are missing"),
        ((1, 2, 3), 7, "shards 4/7, 5/7, 6/7 and 7/7 are missing"),
        ((1,), 9, "shards 2/9, 3/9, 4/9, 5/9, 6/9 and 3 more are missing"),
    ],
)
def test_a_missing_shard_is_named_and_1(fake, call, here: tuple[int, ...], of: int, missing: str) -> None:
    files = [shard(index, of) for index in here]
    result = call("merge", *files, "-q", "--json", "out.json", "--markdown", "out.md", "--html", "out.html")
    assert result.exit_code == 1
    assert result.stdout.replace("\n  ", " ").startswith(f"✗ {missing}; {len(here)} case")
    assert [part.index for part in merged().missing_shards] == [n for n in range(1, of + 1) if n not in here]
    assert f"## gradverify: ✗ {missing}; {len(here)} case" in Path("out.md").read_text(encoding="utf-8")
    assert f"as expected; {missing}<" in Path("out.html").read_text(encoding="utf-8")


def test_a_missing_shard_is_named_beside_what_failed(fake, call) -> None:
    part = write("a.json", masked(), shard=Shard(index=1, of=2))
    result = call("merge", part, "-q")
    assert result.exit_code == 1
    assert "✗ shard 2/2 is missing; 1 of 1 case not as expected: 1 fail" in result.stdout


def test_a_missing_shard_is_an_error_in_a_github_job(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = call("merge", shard(1, 2), "-q")
    assert result.stdout.endswith("\n::error title=gradverify::shard 2/2 is missing\n")


def test_shards_may_be_merged_step_by_step(fake, call) -> None:
    assert call("merge", shard(1, 3), shard(3, 3), "--json", "out.json").exit_code == 1
    assert call("merge", "out.json").exit_code == 1
    assert call("merge", "out.json", shard(2, 3)).exit_code == 0


def test_runs_that_are_divided_each_need_all_their_shards(fake, call) -> None:
    cpu, gpu, other = ([shard(n, of, name) for n in range(1, of + 1)] for name, of in (("c", 2), ("g", 2), ("o", 3)))
    whole = write("whole.json", case("w/whole/cpu"))
    assert call("merge", *cpu, *gpu, *other, whole).exit_code == 0
    assert call("merge", *cpu, *gpu[:1], *other, whole, "-q").stdout.startswith("✗ shard 2/2 is missing; 7 cases")
    assert call("merge", *cpu, *gpu, *other[1:], whole, "-q").stdout.startswith("✗ shard 1/3 is missing; 7 cases")


@pytest.mark.parametrize(("index", "of"), [(0, 2), (3, 2), (1, 10**12)])
def test_an_invalid_shard_is_refused(fake, call, index: int, of: int) -> None:
    file = shard(index, of)
    result = call("merge", file)
    assert (result.exit_code, result.stderr) == (2, f"gradverify: {file}: there is no shard {index}/{of}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("absent.json", "absent.json: no such file or directory"),
        ("empty.json -q -v", "-q and -v exclude each other"),
        ("empty.json --json no/out.json", "cannot write no/out.json"),
    ],
)
def test_other_mistakes_are_2(fake, call, words: str, message: str) -> None:
    write("empty.json")
    result = call("merge", *words.split())
    assert result.exit_code == 2
    assert result.stderr.startswith(f"gradverify: {message}")


def test_reports_without_cases_are_as_expected(fake, call) -> None:
    write("one.json")
    write("other.json")
    result = call("merge", "one.json", "other.json", "--json", "out.json")
    assert (result.exit_code, Path("out.json").is_file()) == (0, True)


def test_no_report_at_all_is_2(fake, call) -> None:
    assert call("merge").exit_code == 2
