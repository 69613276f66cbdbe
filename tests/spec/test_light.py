"""Reading specs is light: no torch, and no waiting."""

from __future__ import annotations

import subprocess
import sys

from tests.spec.support import TENSOR, Folder

SCRIPT = """\
import sys
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths
assert len(expand(read_paths(["s.yaml"]).specs)) == 1
assert not {"torch", "numpy", "rich", "typer"} & set(sys.modules)
"""


def test_reading_a_spec_imports_no_torch(folder: Folder) -> None:
    folder.write("s.yaml", TENSOR)
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
