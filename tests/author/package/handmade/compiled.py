"""An operator in C++, compiled when this module is imported for the first time."""

from pathlib import Path

import torch
from torch.utils.cpp_extension import load

load("handmade_compiled", [str(Path(__file__).with_name("compiled.cpp"))], is_python_module=False)
soft_plus = torch.ops.handmade.soft_plus
