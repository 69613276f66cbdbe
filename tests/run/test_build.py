"""Building problems from cases: signatures, arguments, and the call of forward."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch

from gradverify.case import (
    Case,
    Constraint,
    DeviceArgument,
    DtypeArgument,
    Factory,
    ListInput,
    Literal,
    Normal,
    Parameter,
    ParameterKind,
    SizeArgument,
    Target,
    TargetKind,
    TensorInput,
    TupleArgument,
)
from gradverify.core.model.problem import Problem, call
from gradverify.errors import InputError
from gradverify.run.build import build
from gradverify.run.call import arrange
from gradverify.run.load import LoadError, load
from gradverify.run.run_checks import settings_of
from gradverify.run.signature import signature_of
from tests.run.making import case, target

X = TensorInput(origin=Normal(), shape=(3,))


def built(wanted: Case) -> Problem:
    return build(wanted, load(wanted.target))


def value(problem: Problem) -> torch.Tensor:
    (output,) = call(problem, [primal.tensor for primal in problem.primals])
    return output.tensor


def parameters(function: object) -> list[tuple[str, ParameterKind, bool]]:
    found = signature_of(function).parameters
    assert found is not None
    return [(parameter.name, parameter.kind, parameter.has_default) for parameter in found]


def test_signatures() -> None:
    positional, spread = ParameterKind.POSITIONAL, ParameterKind.VAR_POSITIONAL
    assert signature_of(load(target("Square"))).kind is TargetKind.FUNCTION
    assert parameters(load(target("Square"))) == [("x", positional, False)]
    assert parameters(load(target("NewStyle"))) == [
        ("x", positional, False),
        ("scale", positional, True),
        ("power", positional, True),
    ]
    assert parameters(load(target("Sum"))) == [("scale", positional, True), ("xs", spread, False)]
    assert signature_of(load(target("Scaled"))).kind is TargetKind.MODULE
    assert parameters(load(target("Scaled"))) == [
        ("x", positional, False),
        ("shift", ParameterKind.KEYWORD_ONLY, True),
    ]
    assert parameters(load(target("keywords")))[2] == ("others", ParameterKind.VAR_KEYWORD, False)
    assert parameters(torch.nn.Linear(2, 2)) == [("input", positional, False)]


def test_signature_of_a_builtin_has_no_parameters() -> None:
    found = signature_of(torch.sin)
    assert (found.kind, found.parameters) == (TargetKind.CALLABLE, None)


def test_signature_of_something_not_callable_raises() -> None:
    with pytest.raises(LoadError, match=r"it is of type int, not a Function, a callable or an nn.Module class"):
        signature_of(load(target("NOT_CALLABLE")))


def test_a_parameter_is_a_value() -> None:
    kind = ParameterKind.POSITIONAL
    assert Parameter(name="x", kind=kind, has_default=False) == Parameter(name="x", kind=kind, has_default=False)


def arranged(function: Any, kind: TargetKind = TargetKind.CALLABLE, **values: Any) -> tuple[Any, ...]:
    found = arrange(values, list(inspect.signature(function).parameters.values()), kind)
    return found.names, found.args, dict(found.kwargs)


def test_arguments_are_arranged_by_name() -> None:
    assert arranged(lambda a, b=2, c=3: None, a=1) == (("a",), (1,), {})
    assert arranged(lambda a, b=2, c=3: None, c=9, a=1) == (("a", "b", "c"), (1, 2, 9), {})
    assert arranged(lambda a, b=2, *cs: None, a=1, cs=[7, 8]) == (("a", "b", "cs[0]", "cs[1]"), (1, 2, 7, 8), {})
    assert arranged(lambda a, b=2, *cs: None, a=1, cs=[]) == (("a",), (1,), {})
    assert arranged(lambda a, *, b, **cs: None, a=1, b=2, d=4) == (("a",), (1,), {"b": 2, "d": 4})
    assert arranged(lambda a, **cs: None, a=1, cs={"d": 4}) == (("a",), (1,), {"d": 4})
    assert arranged(lambda a, /, b: None, b=2, a=1) == (("a", "b"), (1, 2), {})


def test_arrange_names_the_argument_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="forward needs `a`"):
        arranged(lambda a, b: None, b=1)
    with pytest.raises(InputError, match="forward has no parameter `c`"):
        arranged(lambda a: None, a=1, c=1)
    with pytest.raises(InputError, match="apply takes no keyword arguments, but `b` is one"):
        arranged(lambda a, *, b: None, TargetKind.FUNCTION, a=1, b=1)


def test_a_function_is_applied() -> None:
    problem = built(case("Square"))
    assert [primal.name for primal in problem.primals] == ["x"]
    assert torch.equal(value(problem), problem.primals[0].tensor ** 2)


def test_an_optional_parameter_in_the_middle_gets_its_default() -> None:
    problem = built(case("NewStyle", inputs={"x": X, "power": Literal(value=3)}))
    assert torch.allclose(value(problem), 3 * problem.primals[0].tensor ** 3)


def test_a_list_is_spread_over_star_args() -> None:
    problem = built(case("Sum", inputs={"xs": ListInput(items=(X, X))}))
    assert [primal.name for primal in problem.primals] == ["xs[0]", "xs[1]"]
    first, second = (primal.tensor for primal in problem.primals)
    assert not torch.equal(first, second)
    assert torch.allclose(value(problem), 2 * (first + second))


def test_dtype_size_device_and_tuple_arguments() -> None:
    inputs = {
        "xs": ListInput(items=(X, X)),
        "dtype": DtypeArgument(name="float32"),
        "size": SizeArgument(size=(2, 3)),
        "device": DeviceArgument(name="case"),
        "options": TupleArgument(items=(1, [2])),
    }
    problem = built(case("total", inputs=inputs))
    assert [primal.name for primal in problem.primals] == ["xs[0]", "xs[1]"]
    assert value(problem).shape == (3,)


def test_keyword_arguments_are_passed_by_keyword() -> None:
    problem = built(case("keywords", inputs={"x": X, "factor": X, "more": Literal(value=2.0)}))
    assert [primal.name for primal in problem.primals] == ["x", "factor"]
    x, factor = (primal.tensor for primal in problem.primals)
    assert torch.equal(value(problem), x * factor * 2)


def test_a_factory_may_return_a_list_and_is_reproducible() -> None:
    factory = Factory(target=target("make"), args={"size": 2})
    made = case("total", inputs={"xs": TensorInput(origin=factory)})
    arguments = built(replace_target(made, "first")).primals
    assert [(primal.name, primal.tensor.dtype) for primal in arguments] == [("xs[0]", torch.float64)]
    again = built(replace_target(made, "first")).primals
    assert torch.equal(arguments[0].tensor, again[0].tensor)


def test_a_module_made_by_a_factory_has_the_dtype_of_the_case() -> None:
    factory = Factory(
        target=Target(module="torch.nn", name="Linear", written="torch.nn:Linear"),
        args={"in_features": 3, "out_features": 2},
    )
    problem = built(case("applied", "factories.py", inputs={"x": X, "module": TensorInput(origin=factory)}))
    assert [primal.name for primal in problem.primals] == ["x"]
    assert value(problem).dtype is torch.float64


def replace_target(wanted: Case, name: str) -> Case:
    return case(name, "factories.py", inputs=wanted.inputs)


def test_a_module_is_differentiated_by_its_parameters_too() -> None:
    wanted = case("Scaled", inputs={"x": X, "shift": Literal(value=1.0)}, init={"size": 3})
    problem = built(wanted)
    assert [primal.name for primal in problem.primals] == ["x", "weight"]
    assert problem.primals[1].tensor.dtype is torch.float64
    first = value(problem)
    assert torch.equal(first, value(problem)), "buffers are fresh for every call"
    x, weight = (primal.tensor for primal in problem.primals)
    assert torch.allclose(first, weight * x * x + 2)
    assert torch.equal(weight, built(wanted).primals[1].tensor)


def test_a_constraint_comes_with_its_projection() -> None:
    square = TensorInput(origin=Normal(), shape=(3, 3), constraint=Constraint.SYMMETRIC)
    problem = built(case("square", inputs={"x": square}))
    assert problem.primals[0].project is not None


def test_a_random_forward_gets_a_seed_of_its_own() -> None:
    assert built(case("noise")).seed is None
    seeded = built(case("noise", stochastic=True))
    assert seeded.seed == built(case("noise", stochastic=True)).seed
    assert torch.equal(value(seeded), value(seeded))
    assert math.isfinite(seeded.seed or 0)


def test_a_missing_output_raises_with_the_line_of_the_spec() -> None:
    with pytest.raises(
        InputError, match=r"s\.yaml:7:3: outputs: there is no 1, 5; forward returns one tensor, number 0"
    ):
        built(case("square", outputs=(0, 1, 5), outputs_at="s.yaml:7:3"))
    assert built(case("square", outputs=(0,))).outputs == (0,)
    assert built(case("sys_exit", "faults.py", outputs=(3,))).outputs == (
        3,
    )  # exceptions of forward are left to the checks


def test_settings_of_a_case() -> None:
    limits = {"max_elements": 3, "max_evaluations": 40_000, "seed": 5}
    settings = settings_of(case("square", checks=("gradcheck", "contract"), **limits))
    assert list(settings) == ["gradcheck", "contract"]
    assert {(one.max_elements, one.max_evaluations, one.seed) for one in settings.values()} == {(3, 40_000, 5)}
