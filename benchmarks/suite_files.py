"""The same cases as a spec and as a pytest file that calls torch's own checks."""

from __future__ import annotations

import itertools
from pathlib import Path

from benchmarks import suite_ops

SHAPES = ((3,), (2, 3), (4,), (5,))
_OPS = Path(suite_ops.__file__).resolve()

_TEST = """\
import sys

import pytest
import torch

sys.path.insert(0, {folder!r})
import suite_ops

CASES = [(name, shape, sample) for name, shape in {pairs!r} for sample in range({samples})]


@pytest.mark.parametrize(("name", "shape", "sample"), CASES)
def test_gradients(name, shape, sample):
    torch.manual_seed(sample)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    function = getattr(suite_ops, name).apply
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))
"""


def write_files(folder: Path, wanted: int) -> int:
    """Write `spec.yaml` and `test_suite.py` with at least `wanted` cases each; returns the number of cases."""
    pairs = list(itertools.product(suite_ops.NAMES, SHAPES))[:wanted]
    samples = -(-wanted // len(pairs))
    cases = [
        f"  {name.lower()}-{'x'.join(map(str, shape))}:\n"
        f'    function: "{_OPS}:{name}"\n'
        f"    inputs: {{x: {{shape: {list(shape)}}}}}\n"
        for name, shape in pairs
    ]
    head = f"samples: {samples}\nchecks: [gradcheck, gradgradcheck]\ncases:\n"
    (folder / "spec.yaml").write_text(head + "".join(cases), encoding="utf-8")
    test = _TEST.format(folder=str(_OPS.parent), pairs=pairs, samples=samples)
    (folder / "test_suite.py").write_text(test, encoding="utf-8")
    return samples * len(pairs)
