"""`gradverify.record` around a block, and `pytest --gradverify-record`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import yaml

from tests.author.recording.making import OPS, run, run_here
from tests.lent import Commands

pytestmark = pytest.mark.slow

BLOCKS = """
import gradverify
from ops import power, real

with gradverify.record("specs") as recording:
    power(real(30), 2)
    print(recording)
print(recording)
power(real(30), 3)
try:
    with gradverify.record("raised") as raised:
        power(real(30), 4)
        raise ValueError("the block's own")
except ValueError as error:
    print(error, [path.name for path in raised.specs])
with gradverify.record("empty") as empty:
    pass
print(empty)
open("file", "w").close()
try:
    with gradverify.record("file"):
        print("never")
except NotADirectoryError as error:
    print(error)
"""

SUITE = """
import subprocess, sys
import gradverify, pytest, torch
from ops import Power, power, real


class InTest(Power):
    pass


@pytest.mark.parametrize("n", [40, 50, 60, 70])
def test_power(n):
    power(real(n), 2).sum().backward()


def test_raises():
    with pytest.raises(ValueError):
        power(real(3), -1)


def test_gradient():
    gradverify.assert_gradients(Power, (real(3, dtype=torch.float64), 7))


def test_class_of_the_tests():
    InTest.apply(real(40), 2)


def test_other_process():
    subprocess.run([sys.executable, "-c", "import ops; ops.Grouped.apply(ops.real(40, 8), 4)"], check=True)
"""


def test_a_block_is_recorded_also_if_it_raises(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = commands.folder
    power, real = OPS.partition("class Lookup")[0], OPS.partition("def real")
    (project / "ops.py").write_text(power + "".join(real[1:]), encoding="utf-8")
    (project / "blocks.py").write_text(BLOCKS, encoding="utf-8")
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "ops", raising=False)
    runpy.run_path("blocks.py", run_name="__main__")
    monkeypatch.delitem(sys.modules, "ops")
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "recording",
        "recorded 1 call of 1 Function, specs in specs",
        "  specs/ops/Power.yaml  2 cases from 1 call",
        "the block's own ['Power.yaml']",
        "no hand-written Function was called",
        "gradverify.record: file is not a folder",
    ], said.err
    (document,) = yaml.safe_load_all((project / "specs" / "ops" / "Power.yaml").read_text(encoding="utf-8"))
    assert document["inputs"]["exponent"] == 2
    assert said.err == ""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_session_is_recorded(commands: Commands, workers: tuple[str, ...]) -> None:
    project = commands.folder
    (project / "ops.py").write_text(OPS, encoding="utf-8")
    (project / "tests").mkdir()
    (project / "tests" / "test_ops.py").write_text(SUITE, encoding="utf-8")
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    ran = run(project, "-m", "pytest", "tests", "--gradverify-record", "specs", "-p", "no:cacheprovider", *workers)
    assert ran.code == 0, ran.out
    assert ran.out.partition("= gradverify =")[2].splitlines()[1:5] == [
        "recorded 6 calls of 3 Functions, specs in specs",
        "  specs/ops/Power.yaml        4 cases from 4 calls",
        "  specs/test_ops/InTest.yaml  2 cases from 1 call",
        "  specs/ops/Grouped.yaml      2 cases from 1 call",
    ]
    assert "from `pytest tests -p no:cacheprovider" in (project / "specs" / "ops" / "Power.yaml").read_text()
    (in_test,) = ran.spec("test_ops/InTest")
    assert in_test["function"] == "../../tests/test_ops.py:InTest"
    if not workers:  # the specs are the same
        judged = run_here(commands, "run", "specs")
        assert judged.code == 0, judged.out


def test_a_file_in_place_of_the_folder_is_a_mistake(project: Path) -> None:
    ran = run(project, "-m", "pytest", "--gradverify-record", "ops.py")
    assert ran.code == 4
    assert "ERROR: --gradverify-record ops.py: expected a folder, found a file" in ran.err


def test_without_the_option_nothing_is_loaded(project: Path) -> None:
    (project / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n    assert 'gradverify.author' not in sys.modules\n"
        "    assert 'gradverify_observer' not in sys.modules\n",
        encoding="utf-8",
    )
    ran = run(project, "-m", "pytest")
    assert ran.code == 0, ran.out
