"""A case written as a document reads back to an equal case."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradverify.case import (
    Case,
    DataFile,
    DtypeArgument,
    Factory,
    Input,
    ListInput,
    Literal,
    Normal,
    SizeArgument,
    Target,
    TensorInput,
    Tolerances,
    TupleArgument,
    Values,
)
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.files import SpecFile
from gradverify.spec.read import read_paths, read_spec
from gradverify.spec.write import inputs_text, spec_text
from tests.spec.support import FUNCTION, TENSOR, Folder
from tests.spec.test_explore_rules import ABOVE as WITH_RULES
from tests.spec.test_explore_rules import FORMS as RULES
from tests.spec.test_inputs import FORMS

TARGET = Target(module="pkg.mod", name="F", written="pkg.mod:F")
LONGEST = 100  # columns


def case_with(inputs: dict[str, Input], **options: Any) -> Case:
    return Case(id="s/F", draw_key="s/F", spec="s.yaml", line=1, target=TARGET, inputs=inputs, **options)


def read(text: str) -> Case:
    reading = read_spec(text, SpecFile(path=Path("s.yaml"), location=Path("/nowhere/s.yaml"), name="s"))
    assert not reading.errors, [text, *map(str, reading.errors)]
    (case,) = expand(reading.specs)
    return case


def without_places(case: Case) -> Case:
    """Return the case without the names and places that depend on where it is written."""
    target, surrogate, reference = (one and replace(one, written="") for one in targets(case))
    assert target is not None
    case = replace(case, id="", draw_key="", spec="", line=0, outputs_at="", target=target)
    inputs = {name: _unwritten(value) for name, value in case.inputs.items()}
    return replace(case, surrogate=surrogate, reference=reference, inputs=inputs)


def targets(case: Case) -> tuple[Target | None, ...]:
    return case.target, case.surrogate, case.reference


def _unwritten(value: Input) -> Input:
    if isinstance(value, TensorInput) and isinstance(value.origin, Factory):
        return replace(value, origin=replace(value.origin, target=replace(value.origin.target, written="")))
    return value


def same_again(folder: Folder, case: Case) -> str:
    """Write a case, read it, and return the text if both are equal."""
    texts = []
    for place in (None, folder.path / "found"):
        text = spec_text(case, folder=place)
        file = "found/s.yaml" if place else "s.yaml"
        reading = folder.read(text, file)
        assert not reading.errors, [text, *map(str, reading.errors)]
        (again,) = expand(reading.specs)
        assert without_places(again) == without_places(case), text
        assert spec_text(again, folder=place) == text
        texts.append(text)
    return texts[0]


MORE_FORMS = [
    "{file: x.npz}",
    "{file: 'x.npz:weight', dtype: float32}",
    "{file: x.npz, shape: [2, 3]}",
    "{factory: ops/conv.py:make, args: {wave: db2, deep: {a: [1, null], b: 1e-9}}}",
    "{factory: pkg.mod:make}",
    "{shape: [5], normal: [0.5, 1e-20], avoid: [0, 1e300], requires_grad: true}",
    "{shape: [2, 2, 2, 2], layout: channels_last}",
    "{shape: [3], constraint: positive, uniform: [0, 1]}",
    "{shape: [n, 2 * n, 3]}",
    '{size: [n, -1, "min(n, 2)"]}',
    "[{shape: [n]}, {values: [1]}]",
]


@pytest.mark.parametrize("form", [*(text for text, _ in FORMS), *MORE_FORMS])
def test_every_form_of_input_reads_back(folder: Folder, form: str) -> None:
    dims = "dims: {n: 4}\n" if "n" in form.replace("uniform", "") and "[n" in form else ""
    (case,) = folder.cases(f"{FUNCTION}{dims}inputs:\n  x: {form}\n")
    same_again(folder, case)


DOCUMENTS = [
    TENSOR + "draft: 'say the shapes: q, k'\n",
    TENSOR + "init: {width: 3, names: [a, 'b c'], deep: {eps: 1e-7}}\n",
    TENSOR + "outputs: [0, 2]\nstochastic: true\nchecks: [contract]\ndtypes: [complex64]\ndevices: ['cuda:1']\n",
    TENSOR + "seed: 7\ntimeout: 0.5\ntorch_gradcheck: never\nprecision: tf32\ninterpret: true\n",
    TENSOR + "surrogate: ops/conv.py:soft\n",
    TENSOR + "reference: ops/conv.py:plain\n",
    TENSOR + "reference: ops/conv.py:plain\ndtypes: [float32]\n",
    TENSOR + "rtol: 1e-7\natol: 1e-9\n",
    TENSOR + "rtol: 1e-7\ngradcheck: {rtol: 1e-3, atol: 1e-5}\n",
    TENSOR + "rtol: 1e-7\nreference: ops/conv.py:plain\ngradcheck: {rtol: 1e-3}\n",
    TENSOR + "gradcheck: {rtol: 1e-3}\n",
    TENSOR + "expect: fail\n",
    TENSOR + "expect: {cause: sign-flip}\n",
    TENSOR + "expect: {gradcheck: fail, gradgradcheck: inconclusive, cause: sign-flip}\n",
    TENSOR + "expect: {gradcheck: {cause: straight-through, codes: [GV101, GV102]}, contract: {verdict: skip}}\n",
    TENSOR + "expect: {gradgradcheck: {verdict: inconclusive, codes: [GV204]}}\n",
    TENSOR + "reference: ops/conv.py:plain\nexpect: {saved_bytes: '<=  0.5 * reference'}\n",
    FUNCTION
    + "dims: {n: 4, d: 6}\ninputs: {x: {shape: [n, 2 * d]}, y: 'null', z: '1e-7', w: [no, '', '- a', 'é: b']}\n",
    *(f"{WITH_RULES}explore: {rules}\n" for rules, _ in RULES),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[text.splitlines()[-1] for text in DOCUMENTS])
def test_every_key_reads_back(folder: Folder, document: str) -> None:
    (case,) = folder.cases(document)
    same_again(folder, case)


def test_text_of_a_document(folder: Folder) -> None:
    text = (
        FUNCTION + "inputs:\n  x: {shape: [2, n], uniform: [-3, 3]}\n  y: {values: [[1.0, 2, -1e-7]]}\n  mode: none\n"
    )
    text += "dims: {n: 3}\ndtypes: [float32]\nrtol: 1e-3\nexplore: {sizes: {n: {to: 8}}, budget: 9}\n"
    (case,) = folder.cases(text)
    written = spec_text(case, comment="stride: 1 (was 2)\n\nby \x1b[1m", folder=folder.path / "specs" / "found")
    assert written == (
        "# stride: 1 (was 2)\n"
        "#\n"
        "# by \\x1b[1m\n"
        "function: ../../ops/relu.py:F\n"
        "dims: {n: 3}\n"
        "inputs:\n"
        "  x: {shape: [2, n], uniform: [-3, 3]}\n"
        "  y: {values: [[1.0, 2, -1.0e-7]]}\n"
        "  mode: none\n"
        "dtypes: [float32]\n"
        "rtol: 0.001\n"
        "explore:\n"
        "  sizes: {n: {to: 8}}\n"
        "  budget: 9\n"
    )


def test_inputs_have_a_line_each(folder: Folder) -> None:
    (case,) = folder.cases(FUNCTION + "inputs: {x: {values: [[1.0, 2.0, 3.0]]}, stride: 1, eps: 1e-12}\n")
    assert inputs_text(case) == "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 1\neps: 1.0e-12"


def test_long_values_are_wrapped_by_rows() -> None:
    rows = [[float(10 * row + column) for column in range(8)] for row in range(4)]
    text = spec_text(case_with({"x": TensorInput(origin=Values(values=rows), dtype="float32")}))
    assert text.splitlines()[2:] == [
        "  x: {values: [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],",
        "               [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0],",
        "               [20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0],",
        "               [30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0, 37.0]], dtype: float32}",
    ]


def test_paths_are_relative_to_the_folder_or_absolute(folder: Folder) -> None:
    text = FUNCTION + "inputs: {x: {file: x.npz}, y: {factory: ops/conv.py:f}, z: {factory: pkg.mod:f}}\n"
    (case,) = folder.cases(text)
    inside, outside = spec_text(case, folder=folder.path / "ops"), spec_text(case)
    assert inside.splitlines()[0] == "function: relu.py:F"
    assert "{file: ../x.npz}" in inside and "{factory: conv.py:f}" in inside and "{factory: pkg.mod:f}" in inside
    assert f"function: {folder.path}/ops/relu.py:F" in outside.splitlines()[0].replace('"', "")


def test_what_nothing_uses_is_left_out(folder: Folder) -> None:
    text = FUNCTION + "dims: {n: 4, m: 3, k: 2}\ninputs: {x: {shape: [n]}, y: {shape: [m]}}\nsurrogate: ops/conv.py:s\n"
    rules = "explore: {sizes: {n: {}, m: {}}, fixed: [n, m, x], require: k > 1}\n"
    (case,) = folder.cases(text + rules, Overrides(checks=("contract",)))
    given = {**case.inputs, "x": TensorInput(origin=Values(values=[1.0]))}
    (again,) = folder.cases(spec_text(replace(case, inputs=given)))
    assert again.inputs == given
    assert again.dims == {"m": 3, "k": 2}
    assert (set(again.explore.sizes), again.explore.fixed) == ({"m"}, ("m", "x"))
    assert again.surrogate is None


def test_sizes_that_no_longer_fit_are_written_as_numbers() -> None:
    x = TensorInput(origin=Normal(), shape=(5, 2), sizes=("n", 2))
    y = TensorInput(origin=Normal(), shape=(4,), sizes=("n",))
    assert inputs_text(case_with({"x": x, "y": y}, dims={"n": 4})) == "x: {shape: [5, 2]}\ny: {shape: [n]}"


def test_values_of_a_tensor_may_be_complex_numbers() -> None:
    values = TensorInput(origin=Values(values=[1 + 2j, -1j, complex(1e-9, -0.5)]))
    again = read(spec_text(case_with({"x": values}))).inputs["x"]
    assert again == TensorInput(origin=Values(values=["1.0+2.0j", "-0.0-1.0j", "1e-09-0.5j"]))


def test_a_tuple_among_plain_values_becomes_a_tuple_argument() -> None:
    assert read(spec_text(case_with({"x": Literal(value=(1, 2))}))).inputs == {"x": TupleArgument(items=(1, 2))}


REFUSED: list[tuple[Input, str]] = [
    (Literal(value={"a": 1}), "YAML has no word for a mapping among plain values"),
    (Literal(value=[1, {}]), "YAML has no word for a mapping among plain values"),
    (Literal(value=object()), "YAML has no word for a value of type object"),
    (Literal(value=[1 + 2j]), "YAML has no word for a value of type complex"),
    (Literal(value=[(1, 2)]), "YAML has no word for a value of type tuple"),
    (Literal(value=2**64), "a whole number has more than 64 bits"),
    (Literal(value="\ud800"), "YAML has no word for text with surrogates"),
    (
        TensorInput(origin=Factory(target=TARGET, args={"a": {1: 2}})),
        "a key must be text, found one of type int",
    ),
    (
        TensorInput(origin=Factory(target=Target(name="make", written="make"))),
        "`make` is in no file and in no module",
    ),
]


@pytest.mark.parametrize(("value", "problem"), REFUSED, ids=[problem for _, problem in REFUSED])
def test_what_yaml_has_no_word_for(value: Input, problem: str) -> None:
    for write in (spec_text, inputs_text):
        with pytest.raises(ValueError, match=r"^input `weight`: ") as caught:
            write(case_with({"x": Literal(value=1), "weight": value}))
        assert str(caught.value) == f"input `weight`: {problem}"


def test_tolerances_that_have_no_place() -> None:
    given = {"gradcheck": Tolerances(), "reference": Tolerances(rtol=1e-3)}
    with pytest.raises(ValueError, match=r"^rtol of `gradcheck` has no place beside those of the other checks$"):
        spec_text(case_with({}, checks=("gradcheck", "reference"), tolerances=given))


FLOATS = st.floats(allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(
    " -:,[]{}#&*!|>'\"%@`~?ny01.e+\n", max_size=6
)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOATS | TEXT
LITERALS = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=12), max_leaves=40).map(
    lambda it: Literal(value=it)
)
COMPLEX = st.complex_numbers(allow_nan=False, allow_infinity=False).map(lambda it: f"{it.real!r}{it.imag:+}j")


@st.composite
def arrays(draw: st.DrawFn) -> TensorInput:
    shape = draw(st.lists(st.integers(1, 7), max_size=3))
    entries = draw(st.sampled_from([FLOATS, st.integers(-(2**63), 2**63 - 1), st.booleans(), COMPLEX]))

    def nested(sizes: list[int]) -> Any:
        return [nested(sizes[1:]) for _ in range(sizes[0])] if sizes else draw(entries)

    return TensorInput(origin=Values(values=nested(shape)))


INPUTS = st.one_of(
    LITERALS,
    arrays(),
    st.lists(arrays(), min_size=1, max_size=3).map(lambda items: ListInput(items=tuple(items))),
    st.lists(PLAIN, max_size=5).map(lambda items: TupleArgument(items=tuple(items))),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda size: SizeArgument(size=tuple(size))),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=2000, derandomize=True)
@given(st.dictionaries(st.sampled_from(["x", "no", "null", "on", "weight", "é", "y"]), INPUTS, min_size=1))
@example({"x": Literal(value=-0.0), "null": Literal(value="."), "no": Literal(value="a: b")})
def test_any_values_read_back_exactly(inputs: dict[str, Input]) -> None:
    text = spec_text(case_with(inputs))
    again = read(text).inputs
    assert repr(again) == repr(inputs), text  # types and signs of zeros too
    yaml.safe_load(text)  # other readers find no mistake in it


@pytest.mark.slow
@settings(max_examples=100, deadline=2000, derandomize=True)
@given(arrays())
def test_lines_are_not_longer_than_a_hundred_columns(value: TensorInput) -> None:
    lines = spec_text(case_with({"x": value})).splitlines()
    assert max(map(len, lines)) <= LONGEST


def test_nan_reads_back() -> None:
    again = read(spec_text(case_with({"x": TensorInput(origin=Values(values=[math.nan, math.inf]))}))).inputs["x"]
    assert repr(again) == repr(TensorInput(origin=Values(values=[math.nan, math.inf])))


def test_an_argument_and_a_data_file_keep_their_form() -> None:
    inputs: dict[str, Input] = {"d": DtypeArgument(name="case"), "f": TensorInput(origin=DataFile(path="/a b/x.npz:w"))}
    assert inputs_text(case_with(inputs)) == "d: {dtype: case}\nf: {file: /a b/x.npz:w}"


def test_every_case_of_our_own_specs_reads_back() -> None:
    folder = Path(__file__).parents[2] / "specs"
    cases = expand(read_paths([folder]).specs)
    assert len(cases) > 100
    for case in cases:
        text = spec_text(case, folder=folder / "found")
        reading = read_spec(text, SpecFile(path=Path("s.yaml"), location=folder / "found" / "s.yaml", name="s"))
        (again,) = expand(reading.specs)
        assert without_places(again) == without_places(replace(case, sample=0)), case.id
