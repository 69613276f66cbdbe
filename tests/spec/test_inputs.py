"""Every form of input, and what it becomes."""

from __future__ import annotations

import math

import pytest

from gradverify.case import (
    Bernoulli,
    Constraint,
    DataFile,
    DeviceArgument,
    DtypeArgument,
    Factory,
    Input,
    Integers,
    Layout,
    Linspace,
    ListInput,
    Literal,
    Normal,
    Permutation,
    SizeArgument,
    Target,
    TensorInput,
    TupleArgument,
    Uniform,
    Values,
)
from tests.spec.support import FUNCTION, Folder

FORMS: list[tuple[str, Input]] = [
    ("2.0", Literal(value=2.0)),
    ("", Literal(value=None)),
    ("no", Literal(value="no")),
    ("true", Literal(value=True)),
    ("1_000", Literal(value=1000)),
    ("1e-6", Literal(value=1e-6)),
    ("1E5", Literal(value=1e5)),
    (".5e3", Literal(value=500.0)),
    ("'1e-6'", Literal(value="1e-6")),
    ("010", Literal(value=10)),
    ("0x10", Literal(value=16)),
    ("0o17", Literal(value=15)),
    ("1:30", Literal(value="1:30")),
    ("2001-01-01", Literal(value="2001-01-01")),
    (".inf", Literal(value=math.inf)),
    ("-.INF", Literal(value=-math.inf)),
    ("!!str 12", Literal(value="12")),
    ("[1, [2, x], null]", Literal(value=[1, [2, "x"], None])),
    ("[]", Literal(value=[])),
    ("{shape: [5]}", TensorInput(origin=Normal(), shape=(5,))),
    ("{shape: []}", TensorInput(origin=Normal(), shape=())),
    ("{shape: [0, 3]}", TensorInput(origin=Normal(), shape=(0, 3))),
    ("{shape: [5], normal: [1, 2]}", TensorInput(origin=Normal(mean=1.0, std=2.0), shape=(5,))),
    ("{shape: [5], uniform: [-3, 3]}", TensorInput(origin=Uniform(low=-3.0, high=3.0), shape=(5,))),
    ("{shape: [5], integers: [0, 10]}", TensorInput(origin=Integers(low=0, high=10), shape=(5,))),
    ("{shape: [5], bernoulli: 0.5}", TensorInput(origin=Bernoulli(p=0.5), shape=(5,))),
    ("{shape: [5], linspace: [1, 0]}", TensorInput(origin=Linspace(start=1.0, end=0.0), shape=(5,))),
    ("{shape: [5], permutation: true}", TensorInput(origin=Permutation(), shape=(5,))),
    ("{values: [[1, 2], [3, 4]]}", TensorInput(origin=Values(values=[[1, 2], [3, 4]]))),
    ("{values: 3}", TensorInput(origin=Values(values=3))),
    ("{values: [1+2j, '-1j', .inf]}", TensorInput(origin=Values(values=["1+2j", "-1j", math.inf]))),
    ("{values: [1, 2], shape: [2, 1]}", TensorInput(origin=Values(values=[1, 2]), shape=(2, 1))),
    ("{shape: [2], dtype: case}", TensorInput(origin=Normal(), shape=(2,), dtype="case")),
    ("{shape: [2], requires_grad: false}", TensorInput(origin=Normal(), shape=(2,), requires_grad=False)),
    ("{shape: [2, 3], layout: transposed}", TensorInput(origin=Normal(), shape=(2, 3), layout=Layout.TRANSPOSED)),
    ("{shape: [2], avoid: [0, 2.0]}", TensorInput(origin=Normal(), shape=(2,), avoid=(0.0, 2.0))),
    (
        "{shape: [2, 2], constraint: symmetric, constrained: false}",
        TensorInput(origin=Normal(), shape=(2, 2), constraint=Constraint.SYMMETRIC, constrained=False),
    ),
    (
        "[{shape: [2]}, {values: [1]}]",
        ListInput(items=(TensorInput(origin=Normal(), shape=(2,)), TensorInput(origin=Values(values=[1])))),
    ),
    ("{dtype: float32}", DtypeArgument(name="float32")),
    ("{size: [2, 3]}", SizeArgument(size=(2, 3))),
    ("{tuple: [1, 2, [3]]}", TupleArgument(items=(1, 2, [3]))),
    ("{device: case}", DeviceArgument(name="case")),
    ("{device: cuda:1}", DeviceArgument(name="cuda:1")),
]


@pytest.mark.parametrize(("text", "expected"), FORMS, ids=[text for text, _ in FORMS])
def test_form(folder: Folder, text: str, expected: Input) -> None:
    assert folder.input(text) == expected


def test_a_nan_is_a_value(folder: Folder) -> None:
    value = folder.input("{values: [.nan]}")
    assert isinstance(value, TensorInput)
    assert isinstance(value.origin, Values)
    assert math.isnan(value.origin.values[0])


def test_data_files_are_found_beside_the_spec(folder: Folder) -> None:
    assert folder.input("{file: x.npz}") == TensorInput(origin=DataFile(path=str(folder.path / "x.npz")))
    assert folder.input("{file: 'x.npz:weight'}") == TensorInput(origin=DataFile(path=f"{folder.path}/x.npz:weight"))


def test_a_factory_is_a_target_with_arguments(folder: Folder) -> None:
    target = Target(file=str(folder.path / "ops" / "conv.py"), name="make", written="ops/conv.py:make")
    factory = Factory(target=target, args={"wave": "db2"})
    assert folder.input("{factory: ops/conv.py:make, args: {wave: db2}}") == TensorInput(origin=factory)


def test_aliases_repeat_what_they_name(folder: Folder) -> None:
    text = "function: ops/relu.py:F\ninputs: {x: &a {shape: [2]}, y: *a}\n"
    (case,) = folder.cases(text)
    assert case.inputs["x"] == case.inputs["y"]


@pytest.mark.parametrize("drawn", ["uniform: [0, 1]", "linspace: [0, 1]", "integers: [1, 9]", "normal: [0, 1]"])
def test_what_begins_at_zero_may_be_positive(folder: Folder, drawn: str) -> None:
    assert folder.errors(FUNCTION + f"inputs: {{x: {{shape: [5], {drawn}, constraint: positive}}}}\n") == []
