"""Which modules `init` imports: those whose code, not whose texts, names what makes functions with a gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.author.finding.reading import Text, read_module, relevant


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nclass F(torch.autograd.Function): pass\n",
        "from torch.autograd import *\nclass F(Function): pass\n",
        "from torch.library import custom_op\n",
        "import torch\ntorch.ops.load_library('kernels.so')\n",
        "import torch\ndef f(x): return torch.ops.kernels.f(x)\n",
        "from . import _C\n",
        "from package import _C\n",
        "class F(torch.autograd.Function): this does not parse",
    ],
)
def test_module_that_may_define_a_function_is_imported(source: str, tmp_path: Path) -> None:
    assert relevant(texts_of(tmp_path, ops=source)) == {"ops"}


@pytest.mark.parametrize(
    "source",
    [
        '"""Activation Function, after the autograd of others; `_C` stands for a constant."""\n',
        "# torch.autograd.Function would be slower\n",
        "from torch.autograd import grad\n",
        "this does not parse",
        "import torch\ndef f(x): return torch.ops.aten.sin(x) + torch._C._get_tracing_state()\n",
        "from package.ops.functional import f\n",
    ],
)
def test_module_that_only_writes_of_functions_is_not_imported(source: str, tmp_path: Path) -> None:
    assert relevant(texts_of(tmp_path, ops=source)) == set()


def test_class_of_another_modules_function_is_imported(tmp_path: Path) -> None:
    base = "import torch\nclass Base(torch.autograd.Function): pass\n"
    assert relevant(texts_of(tmp_path, base=base, own="from base import Base\nclass F(Base): pass\n")) == {
        "base",
        "own",
    }


def texts_of(folder: Path, **sources: str) -> dict[str, Text]:
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return {name: read_module(str(folder / f"{name}.py")) for name in sources}
