"""`gradverify record`: the command is as it is without, and specs come out that judge as hand-written ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gradverify.formula import evaluate, parse
from tests.author.recording.making import OPS, ROOT, Ran, record, run, run_here
from tests.lent import Commands

pytestmark = pytest.mark.slow

TALKS = """
import subprocess, sys, traceback
import torch, ops
from ops import power, real

print("out", input())
power(torch.ones(3), 95)
try:
    power(torch.ones(3), -1)
except ValueError as error:
    print(error, file=sys.stderr)
print(sys.path, sys.argv)
shifted = torch.ops.recorded.shifted
for call in (power, shifted, shifted.default, torch.ops.aten.sin.default):
    try:
        call(torch.ones(3), -1.0)
    except (ValueError, RuntimeError):
        traceback.print_exc()
print(shifted, list(torch.ops.recorded.outer))
torch.ops.recorded.plain(torch.ones(3))
shifted(torch.ones(3), torch.ones(3, requires_grad=True))
shifted(torch.ones(3), -2.0)
"""

CALLS = """
import multiprocessing, os, subprocess, sys
import torch
from ops import *


class Here(Configured):
    pass


library = torch.library.Library("here", "DEF")
library.define("half(Tensor x) -> Tensor")
library.impl("half", lambda x: x / 2, "CompositeImplicitAutograd")


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return power(torch.arange(5.0), 4)


def main():
    for n in (50, 70):
        power(real(n, 2 * n), 2).sum().backward()
    power(real(50, 30).to(torch.bfloat16), 5)
    Lookup.apply(real(30, 8), torch.randint(0, 30, (40,)))
    Join.apply(0, real(20, 9), real(11, 9))
    Spread.apply(real(1, 50), torch.Size([70, 50]), torch.float32)
    Configured.apply(real(4), object())
    Grouped.apply(real(64, 32), 8)
    Gated.apply(real(2, 9, 64))
    Segments.apply(real(20, 4), torch.tensor([3, 9] + 70 * [20]))
    torch.ops.here.half(real(40))
    twice(real(9), 2.5)
    total([real(9, 4), real(9, 4)])
    Here.apply(real(9), None)
    code = "import os, torch, ops; ops.power(ops.real(6), 3); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    list(torch.utils.data.DataLoader(Data(), num_workers=1))


if __name__ == "__main__":
    main()
"""


of_one_recording = pytest.mark.xdist_group("recording")  # else each pytest process would make its own recording


@contextmanager
def given_on_stdin(folder: Path, text: str) -> Iterator[None]:
    """Let programs that are started from here read a text from stdin."""
    (folder / "stdin").write_text(text, encoding="utf-8")
    before = os.dup(0)
    with (folder / "stdin").open(encoding="utf-8") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def with_ops(folder: Path) -> Path:
    (folder / "ops.py").write_text(OPS, encoding="utf-8")
    return folder


_kept: list[Ran] = []


@pytest.fixture
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return what one recording printed and wrote, which all tests look at."""
    if not _kept:
        commands: Commands = request.getfixturevalue("commands")
        (with_ops(commands.folder) / "train.py").write_text(CALLS, encoding="utf-8")
        ran = run_here(commands, "record", "--", sys.executable, "train.py")
        _kept.append(replace(ran, folder=tmp_path_factory.mktemp("recorded") / "kept"))
        shutil.copytree(commands.folder, _kept[0].folder)
    return _kept[0]


def test_the_command_says_what_it_says_without(commands: Commands, capfd: pytest.CaptureFixture[str]) -> None:
    project = with_ops(commands.folder)
    (project / "talks.py").write_text(TALKS, encoding="utf-8")
    plain = run(project, "talks.py", input="hello\n")
    commands.patch.setenv("PYTHONPATH", str(ROOT))  # it is printed
    with given_on_stdin(project, "hello\n"):
        ran = run_here(commands, "record", "--", sys.executable, "talks.py", printed=capfd)
    assert "ValueError: a negative exponent" in plain.err and "UserWarning: a large exponent" in plain.err
    assert "ValueError: a negative shift" in plain.err and "UserWarning: Converting a tensor" in plain.err
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.err.startswith(plain.err)
    assert ran.err.removeprefix(plain.err).startswith("gradverify: recorded 2 calls of 2 Functions, specs in specs\n")


@of_one_recording
def test_files_are_named_after_modules_and_functions(recorded: Ran) -> None:
    assert recorded.code == 0, recorded.err
    files = sorted(str(path.relative_to(recorded.folder / "specs")) for path in recorded.folder.rglob("*.yaml"))
    names = ("Configured", "Gated", "Grouped", "Join", "Lookup", "Power", "Segments", "Spread", "total", "twice")
    assert files == [*(f"ops/{name}.yaml" for name in names), "train/Here.yaml", "train/half.yaml"]
    assert "recorded 19 calls of 12 Functions, specs in specs\n" in recorded.err
    assert "    draft: `options` is a object, which YAML has no word for\n" in recorded.err


@of_one_recording
def test_sizes_and_values_are_in_the_specs(recorded: Ran) -> None:
    squares = next(each for each in recorded.spec("ops/Power") if each["inputs"]["exponent"] == 2)
    assert squares["function"] == "ops:Power"
    assert squares["cases"]["recorded"] == {"dims": {"n": 50, "d": 100}, "dtypes": ["float32"]}
    (lookup,) = recorded.spec("ops/Lookup")
    assert lookup["dims"] == {"n": 4, "d": 6, "k": 5}
    assert lookup["inputs"]["ids"] == {"shape": ["k"], "integers": [0, 4]}
    (join,) = recorded.spec("ops/Join")
    assert [each["shape"] for each in join["inputs"]["parts"]] == [["n", "d"], ["k", "d"]]
    (spread,) = recorded.spec("ops/Spread")
    assert spread["inputs"]["size"] == {"size": [70, "n"]}
    (here,) = recorded.spec("train/Here")
    assert here["function"] == "../../train.py:Here"


@of_one_recording
def test_an_operator_of_the_file_that_is_run_is_named_by_that_file(recorded: Ran) -> None:
    (half,) = recorded.spec("train/half")
    assert half["function"] == "../../train.py:torch.ops.here.half"
    assert "draft" not in half


@of_one_recording
def test_sizes_that_must_be_divisible_stay_so(recorded: Ran) -> None:
    (grouped,) = recorded.spec("ops/Grouped")
    assert grouped["inputs"]["groups"] == 8
    sizes = grouped["dims"]
    assert sizes["d"] % 8 == 0 and sizes["d"] < 32 and sizes["n"] < 64


@of_one_recording
def test_sizes_at_which_autograd_rejects_the_gradient_are_not_written(recorded: Ran) -> None:
    (gated,) = recorded.spec("ops/Gated")
    assert evaluate(parse(str(gated["inputs"]["x"]["shape"][-1])), gated["dims"]) % 2 == 0


@of_one_recording
def test_calls_of_child_processes_are_recorded(recorded: Ran) -> None:
    exponents = {document["inputs"]["exponent"]: document for document in recorded.spec("ops/Power")}
    assert set(exponents) == {2, 3, 4, 5}  # called in the command, a subprocess that ends at once, a forked loader


@of_one_recording
def test_low_precision_is_compared_with_torchs_own_derivative(recorded: Ran) -> None:
    (narrow,) = (each for each in recorded.spec("ops/Power") if each["inputs"]["exponent"] == 5)
    checks = ["reference", "contract"]  # differences of a forward in bfloat16 show little
    assert narrow["cases"]["recorded"] == {"dims": {"n": 50, "d": 30}, "dtypes": ["bfloat16"], "checks": checks}
    assert narrow["cases"]["small"] == {}


@of_one_recording
def test_specs_judge_as_written_ones_do(recorded: Ran, commands: Commands) -> None:
    shutil.copytree(recorded.folder, commands.folder, dirs_exist_ok=True)
    for draft in ("Configured", "Segments"):
        (commands.folder / "specs" / "ops" / f"{draft}.yaml").unlink()
    ran = run_here(commands, "run", "specs", "--json", "report.json")
    failed = [row for row in ran.out.splitlines() if row.startswith("✗ FAIL") and "─" not in row]
    assert len(failed) == 2 and all("ops/Lookup/" in row for row in failed), ran.out
    assert "✗ 2 of " in ran.out and "2 fail;" in ran.out


OPERATORS = """
import torch, ops

for n in (40, 60):
    torch.ops.recorded.shifted(ops.real(n, 3), 2.0)
    torch.ops.recorded.shifted(ops.real(n, 3), ops.real(3))
    torch.ops.recorded.outer.default(ops.real(n, 3)).sum().backward()
    ops.total([ops.real(n)])
    torch.ops.recorded.plain(ops.real(n).detach())
"""


def test_specs_of_operators_name_them_as_init_does(commands: Commands) -> None:
    project = commands.folder
    imports, operators = OPS.partition("class Power")[0], OPS.partition('@torch.library.custom_op("recorded::twice')
    (project / "ops.py").write_text(imports + "".join(operators[1:]), encoding="utf-8")
    ran = run_here(commands, "record", "--", sys.executable, "-c", OPERATORS)
    names = ("_Shifted", "outer", "shifted.row", "shifted", "total", "twice")
    files = sorted(str(path.relative_to(project / "specs")) for path in project.rglob("*.yaml"))
    assert files == [f"ops/{name}.yaml" for name in names], ran.err
    (row,) = ran.spec("ops/shifted.row")
    assert row["function"] == "ops:torch.ops.recorded.shifted.row"
    assert row["cases"]["recorded"] == {"dims": {"n": 40}, "dtypes": ["float32"]}
    run_here(commands, "init", "ops", "-o", "inferred")
    for name in ("outer", "shifted", "total", "twice"):
        (inferred,) = yaml.safe_load_all((project / "inferred" / "ops" / f"{name}.yaml").read_text(encoding="utf-8"))
        assert {each["function"] for each in ran.spec(f"ops/{name}")} == {inferred["function"]}
    judged = run_here(commands, "run", "specs")
    assert judged.code == 0, judged.out


def test_an_operator_that_no_module_leads_to_is_left_out(commands: Commands) -> None:
    project = with_ops(commands.folder)
    code = "import torch, ops; torch.library.impl('recorded::plain', 'Autograd')(lambda x: x); {}"
    call = "torch.ops.recorded.plain(ops.real(3))"
    (project / "ops.py").write_text("import torch as t\n" + (project / "ops.py").read_text(encoding="utf-8"))
    text = (project / "ops.py").read_text(encoding="utf-8") + "\nLIBRARIES, LIBRARY, torch = [LIBRARY], None, None\n"
    (project / "ops.py").write_text(text.replace("return torch.randn", "return t.randn"), encoding="utf-8")
    ran = run_here(commands, "record", "--", sys.executable, "-c", code.format(call))
    assert "recorded 1 call of 1 Function, no spec\n" in ran.err
    assert (
        "  left out: torch.ops:torch.ops.recorded.plain, 1 call: no module that a spec can name leads to it; "
        in ran.err
    )


def test_a_second_recording_replaces_nothing(commands: Commands) -> None:
    there = with_ops(commands.folder) / "specs" / "ops" / "Power.yaml"
    there.parent.mkdir(parents=True)
    there.write_text("# mine\n", encoding="utf-8")
    command = (sys.executable, "-c", "import torch, ops; ops.power(torch.arange(9.0), 2)")
    first = run_here(commands, "record", "--", *command)
    again = run_here(commands, "record", "--", *command)
    assert "  specs/ops/Power-2.yaml  2 cases from 1 call\n" in first.err
    assert "  specs/ops/Power-2.yaml  2 cases from 1 call, was there already\n" in again.err
    assert there.read_text(encoding="utf-8") == "# mine\n"


def test_init_leaves_a_recorded_function_of_a_package_alone(commands: Commands) -> None:
    package = commands.folder / "handmade" / "inner"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "ops.py").write_text(OPS.partition("class Lookup")[0], encoding="utf-8")
    code = "import torch; from handmade.inner import ops; ops.power(torch.arange(9.0), 2)"
    recorded = run_here(commands, "record", "--", sys.executable, "-c", code)
    assert "  specs/handmade/inner/ops/Power.yaml  2 cases from 1 call\n" in recorded.err
    found = run_here(commands, "init", "handmade", "-o", "specs").out.splitlines()
    assert "handmade.inner.ops:Power\texists\tspecs/handmade/inner/ops/Power.yaml\tnot replaced" in found


@of_one_recording
def test_what_values_may_matter_is_told(recorded: Ran) -> None:
    assert "; if the values of ends matter, record again with --values\n" in recorded.err


def test_few_offsets_are_written_as_they_were(commands: Commands) -> None:
    with_ops(commands.folder)
    code = "import torch, ops; ops.Segments.apply(ops.real(20, 4), torch.tensor([3, 9, 20]))"
    ran = run_here(commands, "record", "--", sys.executable, "-c", code)
    (segments,) = ran.spec("ops/Segments")
    assert "draft" not in segments
    assert segments["inputs"]["ends"] == {"values": [3, 9, 20]}
    judged = run_here(commands, "run", "specs")
    assert judged.code == 0, judged.out


def test_kept_values_are_used_at_the_recorded_size(commands: Commands) -> None:
    with_ops(commands.folder)
    code = "import torch, ops; ops.Segments.apply(ops.real(20, 4), torch.tensor([3, 9, 20]))"
    ran = run_here(commands, "record", "--values", "--", sys.executable, "-c", code)
    (segments,) = ran.spec("ops/Segments")
    assert "draft" not in segments
    assert segments["cases"]["recorded"]["inputs"]["ends"] == {"file": "Segments-ends.pt"}
    judged = run_here(commands, "run", "specs")
    assert judged.code == 0, judged.out


def test_nothing_called_says_so_and_keeps_the_exit_code(project: Path) -> None:
    ran = record(project, "--", sys.executable, "-c", "import sys; print('hi'); sys.exit(7)")
    assert (ran.code, ran.out, ran.err) == (7, "hi\n", "gradverify: no hand-written Function was called\n")


def test_options_after_the_command_are_its_own(project: Path) -> None:
    ran = record(project, sys.executable, "-c", "import sys; print(sys.argv[1:])", "-o", "x", "--values")
    assert ran.out == "['-o', 'x', '--values']\n"


def test_a_command_that_is_not_there_is_127(project: Path) -> None:
    ran = record(project, "--", "pytst", "tests/")
    assert (ran.code, ran.out) == (127, "")
    assert ran.err == "gradverify: record: could not start pytst: No such file or directory\n"


def test_mistakes_in_the_options_start_nothing(project: Path) -> None:
    (project / "file").touch()
    ran = record(project, "-o", "file", "--", sys.executable, "-c", "print('started')")
    assert (ran.code, ran.out) == (2, "") and "--output file: " in ran.err
    ran = record(project)
    assert ran.code == 2 and "there is no command; write it at the end" in ran.err


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
def test_a_command_that_a_signal_ends_is_128_more(commands: Commands) -> None:
    with_ops(commands.folder)
    code = "import os, ops; ops.power(ops.real(3), 2); os.kill(os.getpid(), 9)"
    ran = run_here(commands, "record", "--", sys.executable, "-c", code)
    assert ran.code == 128 + 9
    assert "recorded 1 call of 1 Function" in ran.err


def test_an_interrupt_reaches_the_command_and_its_calls_are_kept(project: Path) -> None:
    code = (
        "import time, ops\nops.power(ops.real(3), 2)\nprint('ready', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('stopped')\n    raise SystemExit(5)"
    )
    words = [sys.executable, "-m", "gradverify", "record", "--", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        words, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (5, "stopped\n")
    assert "recorded 1 call of 1 Function, specs in specs\n" in err


def test_what_was_not_tried_before_an_interrupt_is_a_draft(commands: Commands) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    with_ops(commands.folder)
    commands.patch.setattr("gradverify.author.recording.trying.run_cases", interrupted)
    ran = run_here(commands, "record", "--", sys.executable, "-c", "import ops; ops.power(ops.real(3), 2)")
    assert ran.code == 0
    (power,) = ran.spec("ops/Power")
    assert power["draft"].startswith("not tried, since recording was interrupted")


def test_another_sitecustomize_still_runs(commands: Commands, capfd: pytest.CaptureFixture[str]) -> None:
    project = with_ops(commands.folder)
    (project / "custom").mkdir()
    (project / "custom" / "sitecustomize.py").write_text("print('customized')\n", encoding="utf-8")
    code = "import sitecustomize, ops; print(sitecustomize.__file__); ops.power(ops.real(3), 2)"
    commands.patch.setenv("PYTHONPATH", "custom")
    ran = run_here(commands, "record", "--", sys.executable, "-c", code, printed=capfd)
    customized, file = ran.out.splitlines()
    assert customized == "customized"
    assert file.endswith("custom/sitecustomize.py")
    assert "recorded 1 call" in ran.err
