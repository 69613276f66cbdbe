"""`make release-check`: install the wheel in an empty environment and run the README's first example there.

The dependencies are those of the interpreter that runs this, through a .pth file, since a fresh torch takes minutes to
download. gradverify itself is the wheel's: the script stops if another copy is imported.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
_OWN = (
    'import gradverify, pathlib; print(pathlib.Path(gradverify.__file__).resolve(), gradverify.__version__, sep="\\n")'
)


def main(wheel: Path) -> None:
    """Raise SystemExit if the wheel does not install, or if its command does not find the README's mistake."""
    with TemporaryDirectory(prefix="gradverify-wheel-") as name:
        folder = Path(name).resolve()
        venv.create(folder / "env", with_pip=False, symlinks=True)
        python = folder / "env" / "bin" / "python"
        site = Path(_ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
        install = ("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
        _ran(Path(sys.executable), *install, cwd=folder)
        (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        _check_import(_ran(python, "-c", _OWN, cwd=folder).split(), folder, wheel)
        _check_example(folder / "env" / "bin" / "gradverify", folder)
    sys.stdout.write(f"{wheel.name}: installs, and finds the mistake of the README's first example\n")


def _check_import(found: list[str], folder: Path, wheel: Path) -> None:
    place, version = found
    if not place.startswith(str(folder)):
        raise SystemExit(f"gradverify was imported from {place}, not from the wheel")
    if version != wheel.name.split("-")[1]:
        raise SystemExit(f"the wheel is {wheel.name}, but gradverify.__version__ is {version}")


def _check_example(command: Path, folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    (words,) = re.findall(r"```console\n\$ gradverify (check [^\n]*)", readme)[:1]
    (folder / "ops.py").write_text(code, encoding="utf-8")
    shown = _ran(command, *words.split(), cwd=folder, expected=1)
    if "cause missing-mask" not in shown:
        raise SystemExit(f"the README's example does not show its cause:\n{shown}")


def _ran(program: Path, *words: str, cwd: Path, expected: int = 0) -> str:
    done = subprocess.run([program, *words], cwd=cwd, capture_output=True, text=True, timeout=120, env={"PATH": ""})
    if done.returncode != expected:
        raise SystemExit(f"{program.name} {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    (found,) = Path(sys.argv[1]).resolve().glob("*.whl")
    main(found)
