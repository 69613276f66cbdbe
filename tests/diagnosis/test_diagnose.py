"""The search over all causes: order, cost, share of the error, and errors without a cause."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch
from torch import Tensor

from gradverify import catalogue
from gradverify.core.backward.vjps import backward_of
from gradverify.core.decide.verdict import Code
from gradverify.core.model.coordinates import blocks
from gradverify.core.model.tape import record
from gradverify.diagnosis import causes
from gradverify.diagnosis.diagnose import diagnose
from gradverify.evidence import Evidence, JacobianPair, evidence_of
from gradverify.nested import Named
from tests.core.support import problem_of
from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn

SIDE = 1000


def test_each_cause_has_a_section() -> None:
    modules = [import_module(f"{causes.__name__}.{module.name}") for module in iter_modules(causes.__path__)]
    names = {value for module in modules for name, value in vars(module).items() if name.isupper() and name[0] != "_"}
    assert {name for name in names if isinstance(name, str)} == set(catalogue.causes())


def test_second_error_reduces_the_share() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = 2 * g * x.exp()
        gradient[0] *= 1.1
        return gradient

    cause, text = diagnosis_of(torch.exp, backward, torch.linspace(0.9, 1, 40, dtype=torch.float64).requires_grad_())
    assert cause == "constant-factor"
    assert text == "analytic = 2 × numeric (99.9 % of the error): a factor of 2 too many"


def test_one_large_entry_does_not_determine_the_cause() -> None:
    x = torch.tensor([12.0, 0.1, 0.3, -0.4, 0.7], dtype=torch.float64, requires_grad=True)
    factors = torch.tensor([2.0, 1.7, 0.3, 1.2, 0.4], dtype=torch.float64)
    assert diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), x) == (None, "")


@pytest.mark.parametrize(
    "distort",
    [
        lambda slope, x: slope.abs().sqrt(),
        lambda slope, x: slope * (1 + 0.3 * (7 * x).sin()),
        lambda slope, x: (x + 0.1).cos(),
        lambda slope, x: slope + 0.01 * (3 * x).sin(),
        lambda slope, x: slope.tanh(),
    ],
)
def test_unknown_error_gets_no_cause(distort: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert diagnosis_of(torch.sin, lambda g, x: g * distort(x.cos(), x), drawn(8)) == (None, "")


def test_each_wrong_block_gets_its_own_cause() -> None:
    diagnoses = diagnoses_of(torch.mul, lambda g, x, y: (2 * g * y, -g * x), drawn(4), drawn(4, seed=1))
    assert {place: cause for place, (cause, _) in diagnoses.items()} == {
        "output by x": "constant-factor",
        "output by y": "sign-flip",
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "diagonal", "one row"])
def test_large_block_without_pattern_gets_no_cause(kind: str) -> None:
    right = drawn(SIDE, SIDE).detach()
    if kind == "diagonal":
        right = right.diagonal().diag()
    wrong = right * (1 + drawn(SIDE, SIDE, seed=1).detach().abs())
    if kind == "one row":
        wrong = torch.where(torch.arange(SIDE).unsqueeze(1) == 7, wrong, right)
    assert diagnose(_evidence(right, wrong)) is None


def _evidence(numeric: Tensor, claimed: Tensor) -> Evidence:
    problem = problem_of(torch.sin, drawn(numeric.shape[1]))
    tape = record(problem)
    (of,) = blocks(tape.outputs)
    (wrt,) = blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals)
    bar, differs = numeric.abs() * 1e-12, claimed != numeric
    code = torch.where(differs, int(Code.MISMATCH), int(Code.MATCH))
    whole = JacobianPair(
        backward=backward_of(problem, tape, 0),
        outputs=(of,),
        inputs=(wrt,),
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        code=code,
        maybe_kinked=torch.zeros_like(differs),
        eps=torch.finfo(torch.float64).eps,
    )
    return evidence_of(whole, of, wrt)


def test_region_of_one_value_is_a_branch_and_not_a_tile() -> None:
    x, y = drawn(12), torch.tensor([0.0, 1.0] * 6, dtype=torch.float64)
    weighted = lambda x, y: (1 + 2 * y) * x.sin()  # noqa: E731
    diagnosis = diagnoses_of(weighted, lambda g, x, y: (g * x.cos(), None), x, y)["output by x"]
    assert diagnosis[0] == "wrong-branch"
    assert diagnosis[1].endswith("where y = 1")
