"""Triton's interpreter computes as a GPU does, and refuses what it cannot compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gradverify.run import triton_interpreter
from gradverify.run.triton_bfloat16 import to_bfloat16, to_float32
from tests.specs.interpreted import can_interpret

pytestmark = pytest.mark.slow  # each process that imports Triton takes seconds
needs_triton = pytest.mark.skipif(not can_interpret(), reason="triton 3.7 is not installed")
_HELPERS = """
import triton
import triton.language as tl

@triton.jit
def total(x, y):
    return tl.sum(x, axis=0) + tl.sum(y, axis=0)
"""
_KERNELS = """
import json
import torch
from gradverify.errors import what_is_lacking
from gradverify.run.triton_interpreter import set_up
set_up()
set_up()  # a second time changes nothing
import triton
import triton.language as tl
from triton.language.extra import libdevice
from helpers import total

@triton.jit
def operations(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place)
    y = tl.load(y_ptr + place)
    tl.store(out_ptr + place, x + y)
    tl.store(out_ptr + BLOCK + place, x * y - x / y)
    tl.store(out_ptr + 2 * BLOCK + place, x.to(tl.float32) * 1.00390625)
    tl.store(out_ptr + 3 * BLOCK + place, tl.where(x < y, tl.full([BLOCK], 1.5, tl.bfloat16), x))
    tl.store(out_ptr + 4 * BLOCK + place, tl.maximum(x, y))
    tl.store(out_ptr + 5 * BLOCK + place, tl.zeros([BLOCK], tl.bfloat16) + tl.sum(x))
    tl.store(out_ptr + 6 * BLOCK + place, tl.sort(x))

@triton.jit
def product(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out_ptr + place, tl.dot(tl.load(x_ptr + place), tl.load(y_ptr + place)))

@triton.jit
def rounded(number, out_ptr):
    tl.store(out_ptr, number.to(tl.float64))

@triton.jit
def tanh(x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out_ptr + place, libdevice.tanh(tl.load(x_ptr + place)))

@triton.jit
def bessel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out_ptr + place, libdevice.j0(tl.load(x_ptr + place)))

@triton.jit
def totals(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    for place in range(3):
        tl.store(out_ptr + place, total(x, x * place))

@triton.autotune(configs=[triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=["count"])
@triton.jit
def tuned(x_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < count)
    tl.store(x_ptr + place, 2 * x, mask=place < count)

def lacking(run):
    try:
        run()
    except Exception as error:
        return what_is_lacking(error)

g = torch.Generator().manual_seed(0)
x, y = (torch.randn(16, generator=g).bfloat16() for _ in range(2))
out = torch.empty(7, 16, dtype=torch.bfloat16)
operations[(1,)](x, y, out, BLOCK=16)
answers = {
    "sum": bool((out[0] == x + y).all()),
    "products": bool((out[1] == ((x * y).float() - x.float() / y.float()).bfloat16()).all()),
    "cast": bool((out[2] == (x.float() * 1.00390625).bfloat16()).all()),
    "comparison": bool((out[3] == torch.where(x < y, 1.5, x)).all()),
    "maximum": bool((out[4] == torch.maximum(x, y)).all()),
    "reduction": bool(((out[5].double() - x.double().sum()).abs() < 0.1).all()),
}
answers["sort"] = bool((out[6] == x.sort().values).all())
a, b = (torch.randn(16, 16, generator=g).bfloat16() for _ in range(2))
c = torch.empty(16, 16)
product[(1,)](a, b, c, BLOCK=16)
answers["dot"] = bool(torch.allclose(c, a.float() @ b.float(), atol=1e-5))
wide = torch.linspace(-3, 3, 16)
found = torch.empty(16)
tanh[(1,)](wide, found, BLOCK=16)
answers["libdevice"] = bool(torch.allclose(found, wide.tanh()))
number = torch.empty(1, dtype=torch.float64)
rounded[(1,)](0.1, number)
answers["float argument"] = float(number) == float(torch.tensor(0.1))
twice = torch.ones(20)
tuned[lambda meta: (triton.cdiv(20, meta["BLOCK"]),)](twice, 20)
answers["autotune"] = bool((twice == 2).all())
answers["missing function"] = lacking(lambda: bessel[(1,)](wide, found, BLOCK=16))
tanh[(1,)](wide + 1, found, BLOCK=16)
answers["libdevice after an error"] = bool(torch.allclose(found, (wide + 1).tanh()))
sums = torch.empty(2, 3)
for each in sums:
    totals[(1,)](wide + 1, each, BLOCK=16)
answers["function of another module"] = bool(torch.allclose(sums, 16 * torch.tensor([1.0, 2.0, 3.0])))
answers["driver"] = lacking(lambda: triton.runtime.driver.active.get_current_target())
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Run the kernels in a process of their own: the interpreter is for a whole process."""
    file: Path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    file.write_text(_KERNELS, encoding="utf-8")
    (file.parent / "helpers.py").write_text(_HELPERS, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    "operation",
    [
        *("sum", "products", "cast", "comparison", "maximum", "reduction", "sort", "dot", "libdevice"),
        *("libdevice after an error", "float argument", "function of another module"),
    ],
)
def test_interpreter_computes_as_torch(operation: str, answers: dict[str, object]) -> None:
    assert answers[operation] is True


@needs_triton
def test_autotune_takes_a_configuration_without_timing(answers: dict[str, object]) -> None:
    assert answers["autotune"] is True


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU and its driver")
def test_missing_driver_is_named(answers: dict[str, object]) -> None:
    assert str(answers["driver"]).startswith("the interpreter has no GPU driver")


@needs_triton
def test_missing_function_of_libdevice_is_named(answers: dict[str, object]) -> None:
    assert answers["missing function"] == "the interpreter has no libdevice.j0"


def test_without_triton_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_interpreter, "find_spec", lambda _: None)
    reason = "triton is not installed: pip install 'gradverify[triton]'"
    assert triton_interpreter.why_not_interpreted() == reason
    with pytest.raises(triton_interpreter.NotOnThisMachine, match="triton is not installed"):
        triton_interpreter.set_up()


@pytest.mark.slow
@needs_triton
def test_triton_imported_before_is_named() -> None:
    code = """
import triton.language
from gradverify.errors import NotOnThisMachine
from gradverify.run.triton_interpreter import set_up
try:
    set_up()
except NotOnThisMachine as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "triton was imported in this process before its interpreter was switched on\n"


@pytest.mark.slow
@needs_triton
def test_old_triton_is_named() -> None:
    code = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import triton
from gradverify.errors import NotOnThisMachine
from gradverify.run.triton_interpreter import set_up
triton.__version__ = "3.1.0"
try:
    set_up()
except NotOnThisMachine as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "triton 3.1.0 is too old to interpret kernels here: 3.7 or newer is needed\n"


def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 3.4e38, -3.4e38, 1e-40, -1e-45, 1 + 2**-8, 1 + 3 * 2**-8])
    values = torch.cat((torch.randn(1000, generator=torch.Generator().manual_seed(0)).exp(), special))
    bits = to_bfloat16(values.numpy())
    assert bits.dtype == np.uint16
    assert torch.equal(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16), values.bfloat16())
    assert torch.equal(torch.from_numpy(to_float32(bits)), values.bfloat16().float())


def test_bfloat16_keeps_nan_and_shapes() -> None:
    values = np.array([[np.nan], [1.0]], dtype=np.float32)
    found = to_float32(to_bfloat16(values))
    assert found.shape == (2, 1)
    assert np.isnan(found[0, 0])
    assert found[1, 0] == 1
