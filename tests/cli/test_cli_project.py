"""Defaults in pyproject.toml: found in parent folders, validated, and overridden by options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from report_specimens import case, masked

from gradverify.case import TorchGradcheck
from gradverify.cli.project import readers_of
from gradverify.cli.request import engine_of
from gradverify.run.options import EngineName, EngineOptions

FULL = """
[tool.gradverify]
paths = ["specs", "more/specs"]
checks = ["gradcheck", "contract"]
devices = ["cpu", "cuda:1"]
dtypes = ["float32"]
samples = 3
seed = 0
timeout = 120
torch_gradcheck = "never"
workers = 2
memory = "2G"
elements = 7
max_evaluations = 500
require_devices = ["cuda"]
"""
PAGE = Path(__file__).parent.parent.parent / "docs" / "config.md"


def project(text: str, folder: str = ".") -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "pyproject.toml").write_text(text, encoding="utf-8")


def test_every_key(fake, call) -> None:
    fake.results = [case()]
    project(FULL)
    ran = call("run")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert fake.paths == (Path("specs"), Path("more/specs"))
    request = fake.request
    assert (request.checks, request.dtypes) == (("gradcheck", "contract"), ("float32",))
    assert (request.devices, request.require_devices) == (("cpu", "cuda:1"), ("cuda",))
    assert (request.samples, request.seed, request.timeout) == (3, 0, 120.0)
    assert (request.torch_gradcheck, request.workers) == (TorchGradcheck.NEVER, 2)
    assert (request.memory, request.max_elements, request.max_evaluations) == (2 * 2**30, 7, 500)


def test_the_page_lists_every_key(tmp_path: Path) -> None:
    rows = [row.split("|")[1] for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| `")]
    assert {key for row in rows for key in re.findall(r"`([a-z_]+)`", row)} == set(readers_of(tmp_path))


def test_options_override_project_defaults(fake, call) -> None:
    fake.results = [case()]
    project(FULL)
    call("run", "other", "--check", "gradgradcheck", "--device", "cpu", "--seed", "5", "-j", "1", "--elements", "1")
    request = fake.request
    assert fake.paths == (Path("other"),)
    assert (request.checks, request.devices, request.dtypes) == (("gradgradcheck",), ("cpu",), ("float32",))
    assert (request.seed, request.workers, request.max_elements, request.timeout) == (5, 1, 1, 120.0)


def test_an_engine_may_stand_in_the_project_and_an_option_takes_its_place(fake, call) -> None:
    fake.results = [case()]
    project("[tool.gradverify]\nengine = 'ray'\nray_address = 'head:6379'\n")
    call("run", "specs")
    assert engine_of(fake.request) == EngineOptions(name=EngineName.RAY, address="head:6379")
    call("run", "specs", "--engine", "local")
    assert engine_of(fake.request) == EngineOptions()
    call("run", "specs", "--ray-address", "auto", "-j", "3")
    assert engine_of(fake.request) == EngineOptions(name=EngineName.RAY, address="auto", workers=3)


def test_a_run_in_this_process_drops_the_default_limit_of_memory(fake, call) -> None:
    fake.results = [case()]
    project(FULL)
    assert call("run", "-j", "0").exit_code == 0
    assert (fake.request.workers, fake.request.memory) == (0, None)


def test_list_takes_them_too(fake, call) -> None:
    fake.results = [case()]
    project(FULL)
    call("list")
    assert fake.paths == (Path("specs"), Path("more/specs"))
    assert (fake.request.checks, fake.request.samples) == (("gradcheck", "contract"), 3)


def test_the_command_that_repeats_a_case_names_only_what_was_given(fake, call) -> None:
    fake.results = [masked()]
    project(FULL)
    shown = call("run", "--seed", "5").stdout
    assert f"gradverify run specs/clipped_relu.yaml -k '{masked().id}' --seed 5\n" in shown


def test_it_is_found_upwards_and_paths_are_its_own(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.results = [case()]
    project(FULL)
    project("[tool.other]\nkey = 1", "a/b")  # nearer, but without [tool.gradverify]
    monkeypatch.chdir("a/b")
    assert call("run").exit_code == 0
    assert fake.paths == (Path("../../specs"), Path("../../more/specs"))


def test_the_nearest_one_counts_alone(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.results = [case()]
    project(FULL)
    project("[tool.gradverify]\npaths = ['here']", "a")
    monkeypatch.chdir("a")
    call("run")
    assert (fake.paths, fake.request.samples) == ((Path("here"),), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chekcs = ['gradcheck']", "tool.gradverify.chekcs: unknown key (did you mean `checks`?)"),
        ("checks = 'gradcheck'", "tool.gradverify.checks: expected a list of checks, found text 'gradcheck'"),
        ("checks = ['gradchek']", "tool.gradverify.checks[0]: `gradchek` is not known (did you mean `gradcheck`?)"),
        ("checks = []", "tool.gradverify.checks: expected at least one, found an empty list"),
        ("devices = ['gpu']", "tool.gradverify.devices[0]: `gpu` is not a device (did you mean `cuda`?)"),
        ("dtypes = [1]", "tool.gradverify.dtypes[0]: expected one of float16,"),
        ("seed = '1'", "tool.gradverify.seed: expected a whole number, found text '1' (write it without quotes)"),
        ("seed = true", "tool.gradverify.seed: expected a whole number, found true"),
        ("timeout = 0", "tool.gradverify.timeout: must be larger than 0, found 0"),
        ("timeout = inf", "tool.gradverify.timeout: expected a finite number, found the number .inf"),
        ("timeout = 2026-01-01", "tool.gradverify.timeout: expected a number, found text '2026-01-01'"),
        ("workers = -1", "tool.gradverify.workers: expected a whole number from 0 to"),
        ("engine = 'slurm'", "tool.gradverify.engine: "),
        ("memory = 512", "tool.gradverify.memory: expected a size, as '512M' or '2G', found the whole number 512"),
        ("memory = '9999999T'", "tool.gradverify.memory: expected at most 1048576T"),
        ("jobs = 2", "tool.gradverify.jobs: unknown key (did you mean `workers`?)"),
        ("memory = 'much'", "tool.gradverify.memory: expected a size above 0"),
        (
            "paths = 'specs'",
            "tool.gradverify.paths: expected a list of paths, found text 'specs' (write [\"specs\"])",
        ),
        ("torch_gradcheck = 'allways'", "tool.gradverify.torch_gradcheck: `allways` is not known (did you mean"),
        ("json = 'out.json'", "tool.gradverify.json: unknown key (known: paths, checks, devices, dtypes, samples,"),
        ("x = ", "cannot be read: Invalid value (at line 2, column 5)"),
        ("seed = -1\nsamples = 0", "tool.gradverify.seed: expected a whole number from 0 to 9223372036854775807,"),
    ],
)
def test_mistakes_name_file_and_key(fake, call, text: str, message: str) -> None:
    project(f"[tool.gradverify]\n{text}\n")
    for command in ("run", "list"):
        ran = call(command)
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr.startswith(f"gradverify: pyproject.toml: {message}"), ran.stderr
        assert ran.stderr.count("\n") == 1


def test_all_mistakes_are_reported_together(fake, call, monkeypatch: pytest.MonkeyPatch) -> None:
    project("[tool.gradverify]\nseed = -1\nsamples = 0\nworker = 1\n")
    Path("a").mkdir()
    monkeypatch.chdir("a")
    told = call("run").stderr
    assert told.startswith("gradverify: ../pyproject.toml: tool.gradverify.seed: ")
    assert "; tool.gradverify.samples: " in told
    assert "; tool.gradverify.worker: unknown key (did you mean `workers`?)\n" in told


@pytest.mark.parametrize("text", ["tool = 1", "[tool]\ngradverify = 1"])
def test_the_table_must_be_a_mapping(fake, call, text: str) -> None:
    fake.results = [case()]
    project(text)
    ran = call("run", "specs")
    expected = (0, "") if text == "tool = 1" else (2, "gradverify: pyproject.toml: tool.gradverify: expected a mapping")
    assert (ran.exit_code, ran.stderr[: len(expected[1])]) == expected


def test_not_utf_8(fake, call) -> None:
    Path("pyproject.toml").write_bytes(b"[tool.gradverify]\nx = '\xff'\n")
    assert call("run").stderr.startswith("gradverify: pyproject.toml: cannot be read: 'utf-8' codec")


@pytest.mark.slow
def test_help_does_not_read_the_project_or_import_slow_modules(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("not TOML", encoding="utf-8")
    code = (
        "import sys\nfrom gradverify.cli.app import app\n"
        "try:\n    app(['run', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "slow = {'torch', 'numpy', 'tomllib', 'yaml', 'gradverify.spec.keys'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
