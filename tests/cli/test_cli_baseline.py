"""`--baseline` and `--write-baseline`: a known failure from its entry to its removal."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_specimens import case, crashed, failing_check, finding, masked, report, unexpected_pass

from gradverify.cli import baseline_file
from gradverify.report.to_json import from_json, to_json
from gradverify.result import CaseResult, Finding

BOTH = (masked(), case("a/good/cpu-float64"))


def text(name: str = "known.yaml") -> str:
    return Path(name).read_text(encoding="utf-8")


def edit(old: str, new: str) -> None:
    assert old in text()
    Path("known.yaml").write_text(text().replace(old, new), encoding="utf-8")


def last() -> list[tuple[bool, str | None]]:
    return [(one.as_expected, one.known) for one in from_json(text(".gradverify/last.json")).cases]


@pytest.mark.slow
def test_from_its_entry_to_its_removal(fake, call) -> None:
    fake.results = [*BOTH]
    assert call("run", "specs").exit_code == 1

    written = call("run", "specs", "--write-baseline", "known.yaml")
    assert (written.exit_code, written.stderr) == (
        0,
        "gradverify: known.yaml knows 1 finding now (1 new); say why in `reason`\n",
    )
    edit("not looked into yet", "the clip is a constant in production")

    ran = call("run", "specs", "--baseline", "known.yaml")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "✓ fail (known)  clipped_relu/vector/cpu-float64" in ran.stdout
    assert "- 1 case known: the clip is a constant in production\n" in ran.stdout
    assert ran.stdout.endswith("✓ 2 cases as expected: 1 pass, 1 fail in 1.23 s\n")
    assert last() == [(True, "the clip is a constant in production"), (True, None)]

    fake.results = [case(masked().id), BOTH[1]]
    ran = call("run", "specs", "--baseline", "known.yaml")
    assert (ran.exit_code, ran.stderr) == (
        0,
        "gradverify: fixed: clipped_relu/vector/cpu-float64 gradcheck GV101 d y / d x;"
        " its entry in known.yaml can go\n",
    )

    written = call("run", "specs", "--write-baseline", "known.yaml")
    assert written.stderr == "gradverify: known.yaml knows 0 findings now (1 fixed)\n"
    assert text().endswith("known: []\n")


def test_writing_again_keeps_reason_and_expiry(fake, call) -> None:
    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known.yaml")
    edit("reason: not looked into yet", "reason: issue 12\n    expires: 2999-01-01")
    before = text()
    assert call("run", "specs", "--write-baseline", "known.yaml").exit_code == 0
    assert text() == before


def test_an_expired_entry_fails_again_and_says_so(fake, call) -> None:
    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known.yaml")
    edit("reason: not looked into yet", "reason: issue 12\n    expires: 2020-01-01")
    for option in ("--baseline", "--write-baseline"):
        ran = call("run", "specs", option, "known.yaml")
        assert ran.exit_code == 1
        assert "the baseline's entry gradcheck GV101 d y / d x expired on 2020-01-01 (issue 12)" in " ".join(
            ran.stdout.split()
        )
    assert "2020-01-01" in text()


def test_a_new_finding_in_a_known_case_fails(fake, call) -> None:
    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known.yaml")
    fake.results = [replace(masked(), checks=(failing_check(findings=(finding(), finding(code="GV102"))),))]
    ran = call("run", "specs", "--baseline", "known.yaml")
    assert ran.exit_code == 1
    assert "not in the baseline: gradcheck GV102 d y / d x" in ran.stdout


def wrong(total: int, wrt: str = "x") -> Finding:
    return finding(total=total, wrt=wrt, cause="missing-mask")


def failing(*findings: Finding) -> CaseResult:
    return replace(masked(), checks=(failing_check(findings=findings),))


def test_a_second_wrong_input_of_a_known_case_fails(fake, call) -> None:
    fake.results = [failing(wrong(224))]
    call("run", "specs", "--write-baseline", "known.yaml")
    assert call("run", "specs", "--baseline", "known.yaml").exit_code == 0
    fake.results = [failing(wrong(224), wrong(32, "w"))]
    ran = call("run", "specs", "--baseline", "known.yaml")
    assert ran.exit_code == 1
    assert "not in the baseline: gradcheck GV101 d y / d w" in ran.stdout


def test_more_wrong_entries_of_a_known_input_fail_and_fewer_are_stale(fake, call) -> None:
    fake.results = [failing(wrong(224))]
    call("run", "specs", "--write-baseline", "known.yaml")
    edit("not looked into yet", "issue 12")
    fake.results = [failing(wrong(256))]
    ran = call("run", "specs", "--baseline", "known.yaml")
    assert ran.exit_code == 1
    assert "beyond the baseline: gradcheck GV101 d y / d x (256 entries, known are 224)" in ran.stdout
    fake.results = [failing(wrong(200))]
    ran = call("run", "specs", "--baseline", "known.yaml")
    assert (ran.exit_code, ran.stderr) == (
        0,
        "gradverify: fewer: clipped_relu/vector/cpu-float64 gradcheck GV101 d y / d x: 200 entries, known are 224;"
        " `total` in known.yaml can be lowered\n",
    )
    ran = call("run", "specs", "--write-baseline", "known.yaml")
    assert ran.stderr == "gradverify: known.yaml knows 1 finding now (1 changed)\n"
    assert "    total: 200\n    cause: missing-mask\n    reason: issue 12\n" in text()


@pytest.mark.parametrize("option", ["--baseline", "--write-baseline"])
def test_a_file_of_version_1_is_2_and_told_how_to_write_it_anew(fake, call, option: str) -> None:
    fake.results = [*BOTH]
    old = f"version: 1\nknown:\n  - case: {masked().id}\n    check: gradcheck\n    code: GV101\n    reason: r\n"
    Path("known.yaml").write_text(old, encoding="utf-8")
    ran = call("run", "specs", option, "known.yaml")
    assert (ran.exit_code, fake.ran, text()) == (2, [], old)
    assert ran.stderr == (
        "known.yaml:1:10: version: expected 2, found 1 (its entries do not say which input is wrong, nor how many"
        " entries are; move it away, and `gradverify run PATH --write-baseline known.yaml` writes it anew)\n"
        "gradverify: 1 mistake in the baseline known.yaml, nothing was run\n"
    )


def test_a_case_that_was_not_selected_is_not_fixed(fake, call) -> None:
    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known.yaml")
    before = text()
    assert call("run", "specs", "-k", "good", "--baseline", "known.yaml").stderr == ""
    call("run", "specs", "-k", "good", "--write-baseline", "known.yaml")
    assert text() == before


def test_a_failure_the_baseline_cannot_cover_still_fails(fake, call) -> None:
    fake.results = [unexpected_pass(), crashed()]
    ran = call("run", "specs", "--write-baseline", "known.yaml")
    assert ran.exit_code == 1
    assert "✗ 1 of 2 cases not as expected: 1 pass" in ran.stdout


def test_an_interrupted_run_writes_nothing(fake, call) -> None:
    fake.results = [*BOTH]
    fake.interrupted = True
    ran = call("run", "specs", "--write-baseline", "known.yaml")
    assert ran.exit_code == 130
    assert "known.yaml was not written: the run was interrupted" in ran.stderr
    assert not Path("known.yaml").exists()


@pytest.mark.parametrize("option", ["--baseline", "--write-baseline"])
def test_a_mistake_in_it_is_2_before_anything_runs(fake, call, option: str) -> None:
    fake.results = [*BOTH]
    Path("known.yaml").write_text(
        "version: 2\nknown:\n  - case: a\n    cod: GV101\n    total: 1\n    reason: r\n", encoding="utf-8"
    )
    ran = call("run", "specs", option, "known.yaml")
    assert (ran.exit_code, fake.ran) == (2, [])
    assert ran.stderr == (
        "known.yaml:4:5: known[0].cod: unknown key (did you mean `code`?)\n"
        "gradverify: 1 mistake in the baseline known.yaml, nothing was run\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--baseline absent.yaml", "absent.yaml:1:1: no such file (--write-baseline absent.yaml makes it)\n"),
        ("--write-baseline no/b.yaml", "gradverify: cannot write no/b.yaml: there is no folder "),
        ("--baseline a --write-baseline b", "gradverify: --baseline and --write-baseline exclude each other\n"),
    ],
)
def test_other_mistakes_are_2(fake, call, words: str, message: str) -> None:
    fake.results = [*BOTH]
    ran = call("run", "specs", *words.split())
    assert (ran.exit_code, fake.ran) == (2, [])
    assert ran.stderr.startswith(message)


def test_the_project_may_name_it(fake, call) -> None:
    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known.yaml")
    Path("pyproject.toml").write_text("[tool.gradverify]\nbaseline = 'known.yaml'\n", encoding="utf-8")
    assert call("run", "specs").exit_code == 0
    assert [entry.code for entry in fake.request.known.entries] == ["GV101"]


def test_merge_knows_it_and_hands_on_what_is_known(fake, call) -> None:
    Path("part.json").write_text(to_json(report(*BOTH)), encoding="utf-8")
    assert call("merge", "part.json", "--write-baseline", "known.yaml").exit_code == 0
    assert call("merge", "part.json", "--baseline", "known.yaml", "--json", "all.json").exit_code == 0
    ran = call("merge", "all.json")
    assert ran.exit_code == 0
    assert "fail (known)" in ran.stdout
    assert "fail (known)" in call("inspect", "--report", "all.json").stdout


def test_reports_of_older_versions_can_be_read(fake, call) -> None:
    plain = json.loads(to_json(report(*BOTH)))
    for one in plain["cases"]:
        del one["known"]
    Path("old.json").write_text(json.dumps(plain), encoding="utf-8")
    assert call("merge", "old.json").exit_code == 1


def test_many_fixed_entries_are_cut(fake, call) -> None:
    fake.results = [replace(masked(), id=f"a/{number}/cpu") for number in range(13)]
    call("run", "specs", "--write-baseline", "known.yaml")
    fake.results = [case(one.id) for one in fake.results]
    told = call("run", "specs", "--baseline", "known.yaml").stderr.splitlines()
    assert len(told) == 11
    assert told[-1] == "gradverify: and 3 more; --write-baseline known.yaml brings them up to date"
    Path("known.yaml").rename("all known.yaml")
    told = call("run", "specs", "--baseline", "all known.yaml").stderr.splitlines()
    assert told[-1] == "gradverify: and 3 more; --write-baseline 'all known.yaml' brings them up to date"


def test_days_are_those_of_the_machine(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime.date):
        @classmethod
        def today(cls) -> datetime.date:
            return datetime.date(2026, 4, 2)

    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known.yaml")
    edit("reason: not looked into yet", "reason: r\n    expires: 2026-04-01")
    monkeypatch.setattr(baseline_file, "date", Later)
    assert call("run", "specs", "--baseline", "known.yaml").exit_code == 1
    edit("2026-04-01", "2026-04-02")
    assert call("run", "specs", "--baseline", "known.yaml").exit_code == 0


@pytest.mark.parametrize("option", ["--baseline", "--write-baseline"])
def test_no_report_is_written_over_it(fake, call, option: str) -> None:
    fake.results = [*BOTH]
    call("run", "specs", "--write-baseline", "known")
    before = text("known")
    ran = call("run", "specs", option, "known", "--junit", "./known")
    assert (ran.exit_code, ran.stderr) == (2, "gradverify: --junit would overwrite the baseline known\n")
    assert text("known") == before


def test_a_baseline_that_cannot_be_written_after_all_is_2(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: str) -> None:
        raise OSError(28, "No space left on device")

    fake.results = [*BOTH]
    monkeypatch.setattr(baseline_file, "write_whole", full)
    ran = call("run", "specs", "--write-baseline", "known.yaml")
    assert (ran.exit_code, ran.stderr) == (2, "gradverify: could not write known.yaml: No space left on device\n")
