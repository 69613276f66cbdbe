"""Parameters that a module starts with at one value everywhere: a gradient that leaves them out is right there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

import gradverify
from gradverify.case import Case, Exploring, Normal, TensorInput
from gradverify.core.model.problem import Problem
from gradverify.errors import EvaluationError
from gradverify.report.notebook import case_html
from gradverify.result import Verdict
from gradverify.run.build import build
from gradverify.run.constant_parameters import drawn_around
from gradverify.run.load import find, load
from gradverify.run.run_case import run_case
from tests.run.making import case, target
from tests.run.ops import constants
from tests.run.ops.constants import ForgetsWeight, Held, Right

NOTE = "parameters that held one value were drawn around it: weight around 1, bias around 0"
KEPT = "parameters that hold one value everywhere are judged as they are, since forward does not accept others: "
X = TensorInput(origin=Normal(), shape=(3, 4))
BOUNDED = {  # modules whose forward does not take any value of a parameter, and where that parameter is judged
    "Root": "decay = 0.9",
    "Checked": "decay = 0.9",
    "Quantile": "tau = 0.9",
    "Coin": "probs = 0.9",
    "Counted": "n = 3",
    "Asserted": "t = 1",
}


def norm(name: str, **changes: object) -> Case:
    return case(name, "constants.py", inputs={"x": X}, init={"dim": 4}, **changes)


def held(dtype: str = "float64", **changes: object) -> tuple[Problem, dict[str, Tensor]]:
    wanted = case("Held", "constants.py", inputs={"x": X}, dtype=dtype, **changes)
    problem = build(wanted, find(wanted.target))
    return problem, {primal.name: primal.tensor for primal in problem.primals}


def test_backward_that_leaves_out_a_weight_of_ones_fails() -> None:
    result = run_case(norm("ForgetsWeight"))
    assert result.verdict is Verdict.FAIL
    assert {finding.wrt for check in result.checks for finding in check.findings} == {"x"}
    assert result.note == NOTE


def test_right_backward_passes_and_says_where_it_was_judged() -> None:
    result = run_case(norm("Right", checks=("gradcheck", "gradgradcheck", "contract")))
    assert result.verdict is Verdict.PASS
    assert result.note == NOTE
    assert NOTE in case_html(result)


def test_parameters_are_drawn_around_their_constant() -> None:
    _, found = held()
    for name, constant in (("ones", 1.0), ("small", 1e-5), ("temperature", 4.0)):
        assert bool(((0.5 * constant <= found[name]) & (found[name] <= 1.5 * constant)).all())
    assert bool((found["negative"] < 0).all())
    assert bool((found["zeros"].abs() <= 0.5).all())
    for name in ("ones", "small", "negative", "zeros"):
        assert found[name].unique().numel() == found[name].numel()


def test_note_names_parameters_by_their_value() -> None:
    problem, _ = held()
    assert problem.note == (
        "parameters that held one value were drawn around it: ones, twice, thrice and 1 more around 1,"
        " small around 1e-05, negative around -2, zeros around 0, temperature around 4"
    )


def test_other_parameters_stay_as_they_are() -> None:
    module = Held()
    torch.manual_seed(0)
    _, found = held()
    assert torch.equal(found["varied"], module.varied.double())
    assert "frozen" not in found
    assert found["endless"].isinf().all() and found["empty"].numel() == 0


def test_complex_parameters_are_drawn_around_their_constant() -> None:
    parameters = {"turned": torch.full((3,), 2j, dtype=torch.complex128, requires_grad=True)}
    found, note = drawn_around(parameters, lambda own: [own["turned"]], key="spec", seed=0)
    turned = found["turned"]
    assert bool((turned.imag >= 1).all()) and bool((turned.real <= -1).all())
    assert note == "parameters that held one value were drawn around it: turned around 0+2j"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_get_the_same_numbers(dtype: str) -> None:
    _, exact = held()
    _, found = held(dtype)
    assert str(found["ones"].dtype) == f"torch.{dtype}"
    assert torch.equal(found["ones"], exact["ones"].to(found["ones"].dtype))


def test_numbers_depend_on_the_seed_and_on_nothing_else() -> None:
    _, one = held(seed=1)
    torch.rand(7)
    _, again = held(seed=1)
    _, other = held(seed=2)
    assert torch.equal(one["ones"], again["ones"]) and not torch.equal(one["ones"], other["ones"])
    assert not torch.equal(one["ones"], one["twice"])


def test_reference_that_is_a_module_gets_the_same_parameters() -> None:
    wanted = norm("Right", checks=("reference",), reference=target("Right", "constants.py"))
    problem = build(wanted, find(wanted.target), load(target("Right", "constants.py")))
    assert problem.reference is not None
    own, other = ({each.name: each.tensor for each in it.primals} for it in (problem, problem.reference))
    assert torch.equal(own["weight"], other["weight"]) and own["weight"].unique().numel() == 4
    assert run_case(wanted).verdict is Verdict.PASS


def test_explored_module_says_it_too() -> None:
    wanted = norm("Right", exploring=Exploring(budget=3))
    result = run_case(wanted)
    assert (result.verdict, result.note) == (Verdict.PASS, NOTE)


@pytest.mark.parametrize("name", ["verify", "explore"])
def test_module_of_the_caller_is_judged_there_and_not_touched(name: str) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    module = ForgetsWeight(4).double()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    versions = [parameter._version for parameter in module.parameters()]
    found = gradverify.verify(module, (x,)) if name == "verify" else gradverify.explore(module, (x,), budget=3)
    assert not found or getattr(found, "message", "") == "the gradient is wrong at the inputs as written"
    assert {key: bool(torch.equal(value, before[key])) for key, value in module.state_dict().items()} == {
        "weight": True,
        "bias": True,
    }
    assert [parameter._version for parameter in module.parameters()] == versions
    assert all(parameter.grad is None for parameter in module.parameters())


def test_assertion_says_where_the_parameters_were() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    with pytest.raises(gradverify.GradientMismatch) as raised:
        gradverify.assert_gradients(ForgetsWeight(4).double(), (x,))
    assert NOTE in " ".join(str(raised.value).split())
    gradverify.assert_gradients(Right(4).double(), (x,))


def test_verified_module_gives_the_same_numbers_twice() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    module = nn.LayerNorm(4, dtype=torch.float64)
    one, two = (gradverify.verify(module, (x,), seed=3) for _ in range(2))
    assert one and one.checks == two.checks and one.note == two.note != ""


@pytest.mark.parametrize("name", BOUNDED)
def test_parameter_that_forward_does_not_accept_elsewhere_is_judged_as_it_is(name: str) -> None:
    found = [run_case(case(name, "constants.py", inputs={"x": X}, seed=seed)) for seed in range(4)]
    assert [result.verdict for result in found] == [Verdict.PASS] * 4
    assert f"{KEPT}{BOUNDED[name]}" in {result.note for result in found}


@pytest.mark.parametrize("name", BOUNDED)
def test_module_of_the_caller_is_judged_where_its_forward_accepts_it(name: str) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    module = getattr(constants, name)().double()
    before = torch.random.get_rng_state()
    found = [gradverify.verify(module, (x,), seed=seed) for seed in range(4)]
    assert all(found)
    assert f"{KEPT}{BOUNDED[name]}" in {result.note for result in found}
    assert torch.equal(torch.random.get_rng_state(), before)


def test_number_that_its_dtype_does_not_hold_is_not_drawn() -> None:
    parameters = {"large": torch.full((64,), 60000.0, dtype=torch.float16, requires_grad=True)}
    found, note = drawn_around(parameters, lambda own: [], key="spec", seed=0)
    assert bool((found["large"] == 60000).all())
    assert note == f"{KEPT}large = 60000"


def test_weight_beside_a_parameter_that_stays_is_drawn_and_missed() -> None:
    result = run_case(case("ForgetsWeightUnderRoot", "constants.py", inputs={"x": X}))
    assert result.note == f"{NOTE}; {KEPT}decay = 0.9"
    assert result.verdict is Verdict.FAIL
    assert {finding.wrt for check in result.checks for finding in check.findings} == {"x"}


def test_as_many_parameters_are_drawn_as_forward_accepts_together() -> None:
    parameters = {name: torch.ones(3, dtype=torch.float64, requires_grad=True) for name in "abcdefgh"}
    calls = []

    def forward(own: Mapping[str, Tensor]) -> list[Tensor]:
        calls.append(own)
        if not all(bool((own[name] == 1).all()) for name in "bg"):
            raise EvaluationError("forward", ValueError("b and g are ones"))
        return [own["a"]]

    found, note = drawn_around(parameters, forward, key="spec", seed=0)
    assert [name for name in found if found[name] is parameters[name]] == ["b", "g"]
    assert note.endswith(f"drawn around it: a, c, d and 3 more around 1; {KEPT}b, g = 1")
    assert len(calls) < 16


def test_forward_that_raises_at_the_given_values_too_is_not_asked_again() -> None:
    parameters = {name: torch.ones(3, dtype=torch.float64, requires_grad=True) for name in "abcdefgh"}
    calls = []

    def forward(own: Mapping[str, Tensor]) -> list[Tensor]:
        calls.append(own)
        raise EvaluationError("forward", ValueError("no"))

    _, note = drawn_around(parameters, forward, key="spec", seed=0)
    assert "drawn around it" in note and KEPT not in note
    assert len(calls) == 2


def test_outputs_that_are_not_finite_at_the_given_values_either_do_not_count() -> None:
    parameters = {"weight": torch.ones(3, dtype=torch.float64, requires_grad=True)}
    endless = torch.tensor([1.0, float("inf")])
    _, note = drawn_around(parameters, lambda own: [endless], key="spec", seed=0)
    assert note == "parameters that held one value were drawn around it: weight around 1"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_parameter_in_float8_stays_as_it_is(dtype: torch.dtype) -> None:
    parameters = {
        "scale": torch.ones(4).to(dtype).requires_grad_(),
        "weight": torch.ones(4, dtype=torch.float64, requires_grad=True),
    }
    found, note = drawn_around(parameters, lambda own: [own["scale"], own["weight"]], key="spec", seed=0)
    assert found["scale"] is parameters["scale"]
    assert note == "parameters that held one value were drawn around it: weight around 1"


def test_parameter_that_starts_as_the_identity_is_drawn_around_it() -> None:
    parameters = {"mix": torch.eye(4, dtype=torch.float64).mul(2).requires_grad_()}
    found, note = drawn_around(parameters, lambda own: [own["mix"]], key="spec", seed=0)
    diagonal = torch.eye(4, dtype=torch.bool)
    assert bool(((found["mix"][diagonal] >= 1) & (found["mix"][diagonal] <= 3)).all())
    assert bool((found["mix"][~diagonal].abs() <= 0.5).all())
    assert found["mix"].unique().numel() == 16
    assert note == "parameters that held zeros and one other value were drawn around them: mix around 0 and 2"


def test_identity_stays_where_forward_needs_its_zeros() -> None:
    def triangular(own: Mapping[str, Tensor]) -> list[Tensor]:
        if bool(own["scale"].triu(1).any()):
            raise EvaluationError("forward", ValueError("not lower triangular"))
        return [own["scale"]]

    parameters = {"scale": torch.eye(3, dtype=torch.float64, requires_grad=True)}
    found, note = drawn_around(parameters, triangular, key="spec", seed=0)
    assert torch.equal(found["scale"], torch.eye(3, dtype=torch.float64))
    assert note == (
        "parameters that hold zeros and one other value are judged as they are, since forward does not accept others:"
        " scale = 0 and 1"
    )
