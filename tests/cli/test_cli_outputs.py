"""The files that `run` and `merge` write."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from report_specimens import masked, report, skipped, timed_out

from gradverify.cli.outputs import FORMATS
from gradverify.report.to_json import to_json

NAMES = [name for name, _ in FORMATS]


@pytest.mark.parametrize("name", NAMES)
def test_run_and_merge_write_every_format(fake, call, name: str) -> None:
    fake.results = [masked(), skipped(), timed_out()]
    ran = call("run", "specs", f"--{name}", "run.out")
    assert (ran.exit_code, ran.stderr) == (1, "")
    Path("part.json").write_text(to_json(report(*fake.results)), encoding="utf-8")
    merged = call("merge", "part.json", f"--{name}", "merged.out")
    assert (merged.exit_code, merged.stderr) == (1, "")
    assert masked().id in Path("run.out").read_text(encoding="utf-8")
    assert masked().id in Path("merged.out").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_destination_that_cannot_be_written_is_2_before_anything_runs(fake, call, name: str) -> None:
    fake.results = [masked()]
    ran = call("run", "specs", f"--{name}", "absent/out")
    assert ran.exit_code == 2
    assert ran.stderr.startswith("gradverify: cannot write absent/out: there is no folder ")
    assert fake.ran == []


def test_every_destination_that_cannot_be_written_is_named(fake, call, tmp_path: Path) -> None:
    fake.results = [masked()]
    Path("here").mkdir()
    words = ("--json", "no/a", "--html", "here", "--junit", "fine", "--write-baseline", "no/b")
    reasons = [f"no/a: there is no folder {tmp_path}/no; make it first", "here: it is not a file"]
    reasons.append(f"no/b: there is no folder {tmp_path}/no; make it first")
    told = "".join(f"gradverify: cannot write {reason}\n" for reason in reasons)
    ran = call("run", "specs", *words)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", told)
    Path("part.json").write_text(to_json(report(masked())), encoding="utf-8")
    assert call("merge", "part.json", *words).stderr == told
    assert fake.ran == []
    assert not Path("fine").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["sin.yaml", "sin.YML", "ops.py", "ruff.toml", "a.ipynb", "x.pt", "x.npz"])
def test_no_report_is_written_over_specs_source_and_data(fake, call, name: str, file: str) -> None:
    fake.results = [masked()]
    Path(file).write_text("mine", encoding="utf-8")
    Path("part.json").write_text(to_json(report(masked())), encoding="utf-8")
    why = f"a report does not end in {Path(file).suffix.lower()}, as specs, source or data do"
    told = f"gradverify: cannot write {file}: {why}; name its file after --{name}\n"
    for words in (("run", "-q"), ("merge", "part.json")):
        ran = call(*words, f"--{name}", file)
        assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", told)
    assert fake.ran == []
    assert Path(file).read_text(encoding="utf-8") == "mine"


def test_no_report_is_written_over_source_that_a_link_leads_to(fake, call) -> None:
    fake.results = [masked()]
    Path("ops.py").write_text("mine", encoding="utf-8")
    Path("out").symlink_to("ops.py")
    assert call("run", "specs", "--json", "out").exit_code == 2
    assert Path("ops.py").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_a_dash_prints_the_report_alone_on_stdout(fake, call, name: str) -> None:
    fake.results = [masked(), skipped()]
    assert call("run", "specs", f"--{name}", "run.out").exit_code == 1
    ran = call("run", "specs", f"--{name}", "-")
    assert (ran.exit_code, ran.stderr) == (1, "")
    assert ran.stdout_bytes.decode() == Path("run.out").read_text(encoding="utf-8")
    Path("part.json").write_text(to_json(report(*fake.results)), encoding="utf-8")
    merged = call("merge", "part.json", f"--{name}", "-")
    assert (merged.exit_code, merged.stderr) == (1, "")
    assert masked().id in merged.stdout
    assert not Path("-").exists()


def test_one_report_at_most_goes_to_stdout(fake, call) -> None:
    ran = call("run", "specs", "--json", "-", "--junit", "-")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == "gradverify: --json and --junit both name -\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_report_is_not_empty(fake, call, name: str) -> None:
    ran = call("run", "specs", f"--{name}", "")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "expected the name of a file, found ''" in ran.stderr


def test_odd_file_names_are_refused_with_a_message(fake, call) -> None:
    fake.results = [masked()]
    Path("one").symlink_to("two")
    Path("two").symlink_to("one")
    long = "x" * 300
    ran = call("run", "specs", "--json", "one", "--html", long)
    assert ran.exit_code == 2
    assert ran.stderr == (
        "gradverify: cannot write one: too many levels of symbolic links\n"
        f"gradverify: cannot write {long}: file name too long\n"
    )


def test_unreadable_files_are_reported_by_the_command(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.results = [masked()]
    for name in ("a.yaml", "r.json", "r.md", "known.yaml"):
        Path(name).touch()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK and allowed(path, mode))
    words = ("--json", "r.json", "--markdown", "r.md", "--write-baseline", "fresh.yaml")
    assert "Usage:" not in call("run", "a.yaml", *words).stderr
    assert "Usage:" not in call("merge", "r.json", "--baseline", "known.yaml").stderr
    assert "Usage:" not in call("inspect", "--report", "r.json").stderr


def test_two_formats_never_share_a_file(fake, call) -> None:
    fake.results = [masked()]
    ran = call("run", "specs", "--json", "out", "--junit", "./out")
    assert (ran.exit_code, ran.stderr) == (2, "gradverify: --json and --junit both name out\n")


def test_all_formats_at_once(fake, call) -> None:
    fake.results = [masked()]
    words = [word for name in NAMES for word in (f"--{name}", f"out.{name}")]
    assert call("run", "specs", *words).exit_code == 1
    assert all(Path(f"out.{name}").stat().st_size for name in NAMES)
    assert Xml.parse("out.junit").getroot().get("failures") == "1"
