"""What the checks say on the other device, as JSON: `python -m tests.elsewhere.findings`."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.diagnosis.diagnose import diagnose
from gradverify.nested import named_tensors
from tests.elsewhere.device import NAME, WAITS, moved, register
from tests.zoo.catalogue import ZOO
from tests.zoo.specimen import Specimen
from tests.zoo.wrong import WRONG

SETTINGS = Settings(torch_gradcheck=TorchGradcheck.NEVER)
LONG = {"largest 25 of 50 equals", "float32 attention weights of scores 3 apart, 15"}  # others are like them
JUDGED = [specimen for specimen in ZOO[1::19] if specimen.name not in LONG]  # every row would take minutes
Said = dict[str, tuple[str, str]]  # by name, the verdict and what explains it; "raised" where a check did

# Functions with the shapes of their inputs, small and large: what is waited for must not grow with these.
WORKS: dict[str, tuple[Callable[..., Tensor], Callable[[int], list[tuple[int, ...]]], tuple[int, int]]] = {
    "sin": (torch.sin, lambda n: [(n,)], (1_000, 100_000)),
    "relu": (torch.relu, lambda n: [(n,)], (1_000, 100_000)),
    "layer norm": (lambda x: functional.layer_norm(x, (16,)), lambda n: [(n, 16)], (16, 256)),
    "product": (torch.matmul, lambda n: [(n, n), (n, n)], (8, 32)),
    "convolution": (functional.conv2d, lambda n: [(2, 3, n, n), (4, 3, 3, 3)], (8, 16)),
    "cumsum, every entry": (lambda x: x.cumsum(0), lambda n: [(n,)], (30, 300)),
    "cumsum, by sums": (lambda x: x.cumsum(0), lambda n: [(n,)], (2_500, 6_000)),
}


def main() -> None:
    """Print what there is to say of every group of specimens, and what was waited for."""
    register()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {
        "gradcheck": _said("gradcheck", JUDGED),
        "gradgradcheck": _said("gradgradcheck", [each for each in ZOO[7::50] if each.name not in LONG]),
        "contract": _said("contract", ZOO[::16]),
        "wrong": _said("gradcheck", [wrong.specimen for wrong in WRONG[::2]]),
        "waits": {name: [_waited(name, size) for size in sizes] for name, (_, _, sizes) in WORKS.items()},
        "refused": _refused(),
    }
    json.dump(found, sys.stdout)


def _said(check: str, specimens: Iterable[Specimen]) -> Said:
    """Return what a check says of the specimens that keep to one device themselves."""
    return {each.name: _judged(check, each) for each in specimens if _keeps_to_one(each)}


def _judged(check: str, specimen: Specimen) -> tuple[str, str]:
    problem = bind(specimen.function, moved(specimen.inputs(0)), names=specimen.names, name=specimen.name)
    try:
        found = run_check(check, problem, SETTINGS, diagnose)
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"
    return found.verdict.value, "; ".join([found.message, *(finding.message for finding in found.findings)])


def _keeps_to_one(specimen: Specimen) -> bool:
    """Tell whether a function runs on this device at all, forth and back."""
    try:
        outputs = named_tensors("output", specimen.function(*moved(specimen.inputs(0))))
        _asked_back([named.tensor for named in outputs if named.tensor.requires_grad])
    except RuntimeError as error:
        return NAME not in str(error)
    except Exception:
        return True  # which is for the checks to say
    return True


def _asked_back(outputs: Sequence[Tensor]) -> None:
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def _waited(name: str, size: int) -> dict[str, Any]:
    """Return how often the host waited for the device in one check, and how it went."""
    function, shapes, _ = WORKS[name]
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes(size)]
    problem = bind(function, [moved(each.requires_grad_()) for each in inputs], names=["x", "w"][: len(inputs)])
    WAITS.clear()
    found = run_check("gradcheck", problem, SETTINGS)
    return {"verdict": found.verdict.value, "waits": sum(WAITS.values()), "method": found.method}


def _refused() -> tuple[str, int]:
    """Return what the device says to a tensor on the CPU, and how often it is waited for by a number and a mask."""
    here = torch.ones(3)
    there = moved(here)
    said = ""
    try:
        there + here
    except RuntimeError as error:
        said = str(error)
    WAITS.clear()
    float(there.sum())
    _ = there[there > 0]
    return said, sum(WAITS.values())


if __name__ == "__main__":
    main()
