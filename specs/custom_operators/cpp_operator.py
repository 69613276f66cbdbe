"""An operator in C++. The first import compiles it, which takes 15 seconds; later ones take the compiled file."""

import shutil
import unittest
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.utils.cpp_extension import get_cxx_compiler, load

if shutil.which(get_cxx_compiler()) is None:
    raise unittest.SkipTest(f"there is no C++ compiler `{get_cxx_compiler()}`")
if shutil.which("ninja") is None:
    raise unittest.SkipTest("ninja, with which torch compiles C++, is not installed")

load(
    "gradverify_specs_cpp",
    [str(Path(__file__).with_name("square_plus.cpp"))],
    extra_cflags=["-O2"],
    is_python_module=False,
)
square_plus = torch.ops.gradverify_specs_cpp.square_plus


@torch.library.register_fake("gradverify_specs_cpp::square_plus")
def _(x: Tensor, b: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("gradverify_specs_cpp::square_plus_backward")
def _(grad: Tensor, x: Tensor, b: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.b = inputs[1]


def _backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    return torch.ops.gradverify_specs_cpp.square_plus_backward(grad, x, ctx.b), None


torch.library.register_autograd("gradverify_specs_cpp::square_plus", _backward, setup_context=_setup_context)
