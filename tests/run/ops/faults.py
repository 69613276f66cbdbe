"""Operations that break the process they run in, each in its own way."""

import ctypes
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import torch

DONE = set()


def once(name):
    """Tell whether this is the first time in this process: a case calls its function many times."""
    first = name not in DONE
    DONE.add(name)
    return first


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__("cannot be pickled")
        self.lock = threading.Lock()

    def __reduce__(self):
        raise TypeError("no")


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text")


class Text(str):
    """A text that could not be rebuilt in a process that has not this module."""


class OddText(Exception):
    def __str__(self):
        return Text("odd")


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        raise Unpicklable(1, 2)


def segfault(x):
    sys.stdout.write("about to touch address 0\n")
    sys.stdout.flush()
    ctypes.string_at(0)


def abort(x):
    os.abort()


def exit_now(x):
    os._exit(3)


def sys_exit(x):
    sys.exit(4)


def killed(x):
    os.kill(os.getpid(), signal.SIGKILL)


def kills_server(x):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def hang(x):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.PyDLL(None).sleep(60)  # in C, with the interpreter's lock


def stop(x):
    os.kill(os.getpid(), signal.SIGSTOP)


def recurse(x):
    return recurse(x)


def deep(x):
    sys.setrecursionlimit(10**9)
    return nested(x)


def nested(x):
    return max([x], key=nested)  # through C, so that the stack itself overflows


def move_and_raise(x):
    os.chdir("/")
    raise ValueError("moved")


def interrupt(x):
    raise KeyboardInterrupt


def unpicklable(x):
    raise Unpicklable(1, 2)


def unprintable(x):
    raise Unprintable


def odd_text(x):
    raise OddText


def memory(x):
    raise MemoryError


def too_large(x):
    return torch.empty(2**55) + x


def hoard(x):
    """Keep what is allocated, so that it adds up."""
    while True:
        DONE.add(torch.ones(1 << 20, dtype=torch.float64))


def hoard_in_python(x):
    kept = [x]
    while True:
        kept.append(bytearray(1 << 20))


def large(x):
    return x * x * torch.ones(6 << 20, dtype=torch.float64).mean()  # 48 MiB for a moment


def flood(x):
    if once("flood"):
        block = b"x" * (1 << 20)
        for _ in range(1 << 6):
            os.write(1, block)
            os.write(2, block)
        sys.stdout.write("y" * (1 << 20))
    return x * x


def close_all(x):
    os.closerange(0, 1024)
    return x * x


def close_streams(x):
    os.closerange(0, 3)
    return x * x


def steal_channel(x):
    os.closerange(3, 1024)
    for _ in range(64):
        os.open("/dev/null", os.O_RDWR)
    return x * x


def steal_notepad(x, path):
    """Open a file of one's own with the descriptor that the worker notes its progress with."""
    for link in pathlib.Path("/proc/self/fd").iterdir():
        if link.is_symlink() and "gradverify-progress" in str(link.readlink()):
            os.dup2(os.open(path, os.O_RDWR), int(link.name))
    return x * x


def fork(x):
    if once("fork"):
        os.fork()
    return x * x


def thread(x):
    if once("thread"):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    return x * x


def child(x):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    raise RuntimeError(process.pid)


def daemon(x):
    """Leave a process that has neither a parent nor this process's group."""
    raise RuntimeError(subprocess.check_output("setsid sleep 3600 >/dev/null 2>&1 & echo $!", shell=True, text=True))


def reads_input(x):
    return x * float(input())


def unruly(x):
    unsettle()
    return x * x


def pollute(x):
    unsettle()
    torch.set_default_device("meta")
    sys.setrecursionlimit(150)
    return torch.zeros(3, dtype=torch.float64, device="cpu") * x


def unsettle():
    os.environ["GRADVERIFY_TEST"] = "polluted"
    os.environ.pop("PATH", None)
    os.chdir("/")
    os.umask(0o777)
    torch.set_default_dtype(torch.float16)
    torch.set_grad_enabled(False)
    torch.set_num_threads(7)
    torch.autograd.set_detect_anomaly(True)
    torch.manual_seed(123)
    random.seed(123)
    np.random.seed(123)
    np.seterr(all="raise")
    sys.path.insert(0, "/nowhere")
    sys.stdout = None
    sys.settrace(None)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
    signal.alarm(600)  # long after the case, however slow the machine
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def sees(x):
    """Fail with what a case can see of its process."""
    raise RuntimeError(
        repr(
            {
                "environment": os.environ.get("GRADVERIFY_TEST"),
                "path": "PATH" in os.environ,
                "directory": str(pathlib.Path.cwd()),
                "umask": os.umask(0o022),
                "dtype": torch.get_default_dtype(),
                "device": torch.empty(0).device,
                "grad": torch.is_grad_enabled(),
                "threads": torch.get_num_threads(),
                "anomaly": torch.is_anomaly_enabled(),
                "numbers": [random.random(), float(np.random.rand()), float(torch.rand(()))],
                "numpy": np.geterr(),
                "recursion": sys.getrecursionlimit(),
                "import": "/nowhere" in sys.path,
                "stdout": sys.stdout is None,
                "filters": len(warnings.filters),
                "term": signal.getsignal(signal.SIGTERM),
                "alarm": signal.getitimer(signal.ITIMER_REAL),
                "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            }
        )
    )


def poison(x):
    """Leave the worker so that whatever it runs next crashes it."""
    import gradverify.run.worker

    gradverify.run.worker._handle = lambda work: os.abort()
    return x * x


def out_of_range(x):
    """Fail an assertion in a GPU's kernel, after which the process cannot use that GPU any more."""
    y = x[torch.tensor([10**6], device=x.device)]
    torch.cuda.synchronize()
    return y


def replaces_softplus(x):
    """Leave a function of torch's replaced, as a library does that speeds it up, and wrongly."""
    torch.nn.functional.softplus = torch.Tensor.detach
    return x * x


def softplus(x):
    return torch.nn.functional.softplus(x)
