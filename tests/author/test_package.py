"""The ways to a spec, tried on a package of ten functions that is installed in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "package"
HAS_COMPILER = shutil.which("c++") is not None and shutil.which("ninja") is not None
VERDICTS = {
    "handmade.activation:ClippedReLU": "fail",
    "handmade.activation:Swish": "pass",
    "handmade.activation:Leaky": "pass",
    "handmade.tensors:WeightedSum": "pass",
    "handmade.tensors:Lookup": "pass",
    "handmade.tensors:Recomputed": "pass",
    "handmade.operators:cube": "fail",
    "handmade.operators:joined": "pass",
    **({"handmade.compiled:soft_plus": "pass"} if HAS_COMPILER else {}),
}
UNIMPORTABLE = "handmade.accelerated:Accelerated"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment with the package, and with the packages of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    made = folder / "env" / "bin" / "python"
    shown = subprocess.run(
        [made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = "".join(f"import site; site.addsitedir({sysconfig.get_path(name)!r})\n" for name in ("purelib", "platlib"))
    Path(shown.stdout.strip(), "ours.pth").write_text(f"{paths}{ROOT}\n", encoding="utf-8")
    shutil.copytree(PACKAGE, folder / "package")
    install = [sys.executable, "-m", "pip", "--python", made, "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--no-index", folder / "package"], check=True)
    return made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with the tests of the package and specs written by hand."""
    for name in ("tests", "specs"):
        shutil.copytree(PACKAGE / name, tmp_path / name)
    return tmp_path


@pytest.fixture(scope="module")
def inferred(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the specs that `init` writes for the package."""
    folder = tmp_path_factory.mktemp("project")
    made = gradverify(python, folder, "init", "handmade", "-o", "inferred")
    assert made.returncode == 0, made.stderr
    return folder / "inferred"


def gradverify(python: Path, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return ran(python, project, "gradverify", *words)


def ran(python: Path, project: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    own = {
        "PYTHONUTF8": "1",
        "TORCH_EXTENSIONS_DIR": str(python.parents[2] / "compiled"),
    }  # a lock may be left elsewhere
    command = [python, "-m", module, *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env={**kept, **own})


@pytest.fixture(scope="module")
def recorded(python: Path, inferred: Path) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """Return the tests of the package without and with `record`, which writes specs beside the inferred ones."""
    project = inferred.parent
    shutil.copytree(PACKAGE / "tests", project / "tests")
    plain = ran(python, project, "pytest", "tests", "-q")
    under = gradverify(python, project, "record", "-o", "recorded", "--", str(python), "-m", "pytest", "tests", "-q")
    return plain, under


@pytest.fixture(scope="module")
def verdicts(python: Path, inferred: Path, recorded: tuple[object, object]) -> Mapping[str, Mapping[str, set[str]]]:
    """Return the verdicts of each function, by the folder of its specs: written by hand, inferred and recorded."""
    project = inferred.parent
    shutil.copytree(PACKAGE / "specs", project / "written")
    if not HAS_COMPILER:
        (project / "written" / "compiled.yaml").unlink()
    folders = ("written", "inferred", "recorded")
    # In one worker: each imports all that the operators need.
    finished = gradverify(python, project, "run", *folders, "--jobs", "1", "--json", "report.json")
    assert finished.returncode in (0, 1), finished.stderr
    found: dict[str, dict[str, set[str]]] = {folder: {} for folder in folders}
    for case in json.loads((project / "report.json").read_text(encoding="utf-8"))["cases"]:
        folder = Path(case["spec"]).parts[0]
        found[folder].setdefault(case["function"], set()).add(case["verdict"])
    return found


def test_specs_written_by_hand(verdicts: Mapping[str, Mapping[str, set[str]]]) -> None:
    assert verdicts["written"] == {name: {verdict} for name, verdict in VERDICTS.items()}


def test_check_says_the_same_as_a_spec(python: Path, project: Path) -> None:
    wrong = gradverify(python, project, "check", "handmade.activation:ClippedReLU", "x:5", "clip=1.5")
    assert wrong.returncode == 1, wrong.stderr
    assert "cause missing-mask" in wrong.stdout
    right = gradverify(python, project, "check", "handmade.activation:Swish", "x:5")
    assert right.returncode == 0, right.stderr


def test_init_finds_all_and_infers_seven(verdicts: Mapping[str, Mapping[str, set[str]]]) -> None:
    found = verdicts["inferred"]
    assert set(found) >= {*VERDICTS, UNIMPORTABLE}
    by_inputs = {name: verdict for name, verdict in found.items() if verdict != {"skip"}}
    assert len(by_inputs) >= (7 if HAS_COMPILER else 6)
    assert by_inputs == {name: {VERDICTS[name]} for name in by_inputs}


def test_record_gives_specs_that_run_for_all_that_is_called(
    verdicts: Mapping[str, Mapping[str, set[str]]],
    recorded: tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]],
) -> None:
    plain, under = recorded
    assert under.returncode == plain.returncode == 0, under.stderr
    assert under.stdout.splitlines()[:-1] == plain.stdout.splitlines()[:-1]  # the last line has a duration
    assert verdicts["recorded"] == {name: {verdict} for name, verdict in VERDICTS.items()}


def test_list_missing_names_what_no_spec_names(python: Path, project: Path, inferred: Path) -> None:
    before = gradverify(python, project, "list", "--missing", "handmade", "specs")
    assert before.returncode == 1, before.stderr
    assert UNIMPORTABLE in before.stdout
    assert not [name for name in VERDICTS if name in before.stdout]
    shutil.copytree(inferred, project / "specs" / "inferred")
    after = gradverify(python, project, "list", "--missing", "handmade", "specs")
    assert after.returncode == 0, after.stdout
