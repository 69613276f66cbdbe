"""One thread for the mathematics: tests run beside each other, and tensors here are small."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
