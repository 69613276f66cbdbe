"""An operator in C++, compiled when this module is imported for the first time."""

from pathlib import Path

import torch
from torch.utils.cpp_extension import load

FLAGS = ["-DAT_PER_OPERATOR_HEADERS", "-O0", "-g0"]  # few headers, unoptimised: it compiles quickly
load("handmade_compiled", [str(Path(__file__).with_name("compiled.cpp"))], extra_cflags=FLAGS, is_python_module=False)
soft_plus = torch.ops.handmade.soft_plus
