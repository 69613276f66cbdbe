"""One thread for the mathematics: tests run beside each other, and tensors here are small. Ctrl-C reaches programs."""

from __future__ import annotations

import signal

import torch

torch.set_num_threads(1)
# A shell starts what it runs in the background with SIGINT ignored, and every program started from here inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
