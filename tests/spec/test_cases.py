"""Cases: how they are merged, what they are called, and what multiplies them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradverify.case import Case, Expectation, Literal, Normal, TensorInput, Tolerances, TorchGradcheck, Uniform, Values
from gradverify.errors import SpecError
from gradverify.result import ExpectedCheck, Verdict
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.read import read_paths
from tests.spec.support import FUNCTION, TENSOR, Folder

DRAWN = FUNCTION + "inputs: {x: {shape: [5], uniform: [-3, 3], avoid: [0], dtype: float32}, y: 2}\n"


def ids(cases: tuple[Case, ...]) -> list[str]:
    return [case.id for case in cases]


MERGED = [
    ("{}", TensorInput(origin=Uniform(low=-3, high=3), shape=(5,), avoid=(0,), dtype="float32")),
    ("{shape: [3, 4]}", TensorInput(origin=Uniform(low=-3, high=3), shape=(3, 4), avoid=(0,), dtype="float32")),
    ("{normal: [0, 1]}", TensorInput(origin=Normal(), shape=(5,), avoid=(0,), dtype="float32")),
    ("{values: [1.5]}", TensorInput(origin=Values(values=[1.5]), dtype="float32")),
    ("{requires_grad: false}", None),
    ("3", Literal(value=3)),
]


@pytest.mark.parametrize(("text", "expected"), [entry for entry in MERGED if entry[1]], ids=str)
def test_an_input_is_merged_key_by_key(folder: Folder, text: str, expected: object) -> None:
    (case,) = folder.cases(DRAWN + f"cases: {{a: {{inputs: {{x: {text}}}}}}}\n")
    assert case.inputs == {"x": expected, "y": Literal(value=2)}
    assert list(case.inputs) == ["x", "y"]


def test_a_shape_replaces_given_values(folder: Folder) -> None:
    text = FUNCTION + "inputs: {x: {values: [1.5], layout: strided}}\ncases: {a: {inputs: {x: {shape: [2]}}}}\n"
    (case,) = folder.cases(text)
    value = case.inputs["x"]
    assert isinstance(value, TensorInput)
    assert (value.origin, value.shape, value.layout) == (Normal(), (2,), "strided")


def test_an_argument_replaces_a_tensor_and_a_tensor_an_argument(folder: Folder) -> None:
    text = FUNCTION + "inputs: {x: {size: [2]}, y: {shape: [2]}, z: {dtype: float32}}\n"
    (case,) = folder.cases(text + "cases: {a: {inputs: {x: {shape: [3]}, y: {size: [4]}, z: {dtype: float64}}}}\n")
    assert [type(value).__name__ for value in case.inputs.values()] == ["TensorInput", "SizeArgument", "DtypeArgument"]


def test_arguments_of_a_factory_are_merged_unless_the_factory_changes(folder: Folder) -> None:
    above = FUNCTION + "inputs: {x: {factory: ops/conv.py:f, args: {a: 1, b: 2}}}\n"
    cases = "cases: {same: {inputs: {x: {args: {b: 3}}}}, other: {inputs: {x: {factory: ops/conv.py:g}}}}\n"
    origins = [case.inputs["x"].origin for case in folder.cases(above + cases)]  # type: ignore[union-attr]
    assert [origin.args for origin in origins] == [{"a": 1, "b": 3}, {}]  # type: ignore[union-attr]


def test_init_is_merged_and_expect_is_replaced(folder: Folder) -> None:
    above = TENSOR + "init: {a: 1, b: {c: 2, d: 3}}\nexpect: {gradcheck: fail, cause: missing-mask}\n"
    (case,) = folder.cases(above + "cases: {a: {init: {b: {c: 4}}, expect: {gradgradcheck: fail}}}\n")
    assert case.init == {"a": 1, "b": {"c": 4, "d": 3}}
    assert case.expect == Expectation(verdict=Verdict.FAIL, checks=checks(gradgradcheck=Verdict.FAIL))


def test_a_case_may_name_its_own_function_and_may_be_empty(folder: Folder) -> None:
    cases = folder.cases(TENSOR + "cases:\n  a:\n  b: {function: 'ops/conv.py:G.h'}\n")
    assert [case.target.name for case in cases] == ["F", "G.h"]
    assert [case.line for case in cases] == [4, 5]


def test_defaults(folder: Folder) -> None:
    (case,) = folder.cases(TENSOR)
    assert case.id == "s/F/cpu-float64"
    assert case.draw_key == "s/F/sample0"
    assert case.checks == ("gradcheck", "gradgradcheck", "contract")
    assert case.tolerances == dict.fromkeys(case.checks, Tolerances())
    assert (case.spec, case.line, case.seed, case.timeout) == ("s.yaml", 1, 0, 60.0)
    assert case.expect == Expectation()
    assert case.target.file == str(folder.path / "ops" / "relu.py")


def test_a_written_seed_makes_draws_independent_of_the_name_of_the_file(folder: Folder) -> None:
    cases = folder.cases(TENSOR + "seed: 0\n---\n" + TENSOR + "cases: {a: {}, b: {seed: 4}}\n")
    assert [(case.draw_key, case.seed) for case in cases] == [
        ("check/F/sample0", 0),
        ("s/a/sample0", 0),
        ("check/b/sample0", 4),
    ]
    overridden = folder.cases(TENSOR, Overrides(seed=7))
    assert [(case.draw_key, case.seed) for case in overridden] == [("s/F/sample0", 7)]


def test_tolerances_of_a_check_stand_before_those_of_the_document(folder: Folder) -> None:
    (case,) = folder.cases(TENSOR + "rtol: 1e-7\natol: 1e-9\ngradcheck: {rtol: 1e-3}\n")
    assert case.tolerances == {
        "gradcheck": Tolerances(rtol=1e-3, atol=1e-9),
        "gradgradcheck": Tolerances(rtol=1e-7, atol=1e-9),
        "contract": Tolerances(rtol=1e-7, atol=1e-9),
    }


def test_every_combination_has_an_id(folder: Folder) -> None:
    cases = folder.cases(TENSOR + "devices: [cpu, cuda:0]\ndtypes: [float32, float64]\nsamples: 2\n")
    assert ids(cases) == [
        f"s/F/{device}-{dtype}-sample{sample}"
        for device in ("cpu", "cuda:0")
        for dtype in ("float32", "float64")
        for sample in (0, 1)
    ]
    assert {case.draw_key for case in cases} == {"s/F/sample0", "s/F/sample1"}


def test_documents_of_one_file_keep_their_cases_apart(folder: Folder) -> None:
    other = TENSOR.replace(":F", ":G")
    text = "---\n".join((TENSOR, TENSOR, TENSOR + "cases: {a: {}}\n", other + "cases: {a: {}}\n", other, TENSOR))
    names = [case.id.split("/")[1] for case in folder.cases(text)]
    assert names == ["F", "F-2", "a", "G.a", "G", "F-3"]


def test_adding_documents_and_files_renames_no_draw(folder: Folder) -> None:
    before = folder.cases(TENSOR)
    folder.write("deeper/s.yaml", TENSOR.replace("ops/", "../ops/"))
    folder.write("s.yaml", TENSOR + "---\n" + TENSOR)
    reading = read_paths(["s.yaml", "deeper"])
    after = expand(reading.specs)
    assert [case.draw_key for case in after] == ["s/F/sample0", "s/F-2/sample0", "s/F/sample0"]
    assert after[0].draw_key == before[0].draw_key
    assert ids(after)[2] == "deeper/s/F/cpu-float64"
    assert len(set(ids(after))) == 3


def checks(**verdicts: Verdict) -> dict[str, ExpectedCheck]:
    return {name: ExpectedCheck(check=name, verdict=verdict) for name, verdict in verdicts.items()}


EXACT = ExpectedCheck(check="gradcheck", verdict=Verdict.FAIL, cause="straight-through", codes=("GV101",))
EXPECTED = [
    ("expect: fail", None, Expectation(verdict=Verdict.FAIL)),
    ("expect: inconclusive", None, Expectation(verdict=Verdict.INCONCLUSIVE)),
    ("expect: {cause: sign-flip}", None, Expectation(verdict=Verdict.FAIL, cause="sign-flip")),
    (
        "expect: {gradcheck: fail, gradgradcheck: pass, cause: sign-flip}",
        None,
        Expectation(
            verdict=Verdict.FAIL,
            checks=checks(gradcheck=Verdict.FAIL, gradgradcheck=Verdict.PASS),
            cause="sign-flip",
        ),
    ),
    (
        "expect: {gradcheck: fail, cause: sign-flip}",
        ("gradgradcheck",),
        Expectation(verdict=Verdict.PASS),
    ),
    ("expect: {gradcheck: skip}", None, Expectation(checks=checks(gradcheck=Verdict.SKIP))),
    (
        "expect: {gradcheck: {verdict: fail, cause: straight-through, codes: [GV101]}}",
        None,
        Expectation(verdict=Verdict.FAIL, checks={"gradcheck": EXACT}),
    ),
    (
        "expect: {gradcheck: {cause: straight-through, codes: [GV101]}}",
        None,
        Expectation(verdict=Verdict.FAIL, checks={"gradcheck": EXACT}),
    ),
    (
        "expect: {gradcheck: {verdict: inconclusive}}",
        None,
        Expectation(verdict=Verdict.INCONCLUSIVE, checks=checks(gradcheck=Verdict.INCONCLUSIVE)),
    ),
    ("expect: {gradcheck: {cause: straight-through}}", ("contract",), Expectation()),
]


@pytest.mark.parametrize(("text", "checks", "expected"), EXPECTED)
def test_what_is_expected_of_the_checks_that_run(
    folder: Folder, text: str, checks: tuple[str, ...] | None, expected: Expectation
) -> None:
    (case,) = folder.cases(TENSOR + text + "\n", Overrides(checks=checks))
    assert case.expect == expected


def test_the_command_line_narrows_a_list_and_replaces_a_default(folder: Folder) -> None:
    text = TENSOR + "cases:\n  own: {devices: [cpu, cuda], checks: [gradcheck]}\n  default: {}\n"
    asked = Overrides(devices=("cuda",), dtypes=("float32",), checks=("gradcheck",))
    assert ids(folder.cases(text, asked)) == ["s/own/cuda-float32", "s/default/cuda-float32"]
    assert ids(folder.cases(text, Overrides(devices=("mps",)))) == ["s/default/mps-float64"]
    assert ids(folder.cases(text, Overrides(checks=("gradgradcheck",)))) == ["s/default/cpu-float64"]


def test_the_command_line_replaces_numbers(folder: Folder) -> None:
    asked = Overrides(seed=7, samples=2, timeout=3.0, torch_gradcheck=TorchGradcheck.NEVER, max_elements=5)
    asked = replace(asked, max_evaluations=9)
    cases = folder.cases(TENSOR + "seed: 1\nsamples: 3\ntimeout: 9\ntorch_gradcheck: always\n", asked)
    assert ids(cases) == ["s/F/cpu-float64-sample0", "s/F/cpu-float64-sample1"]
    assert {case.max_evaluations for case in cases} == {9}
    assert {(case.seed, case.timeout, case.torch_gradcheck, case.max_elements) for case in cases} == {
        (7, 3.0, "never", 5)
    }


def test_the_command_line_cannot_ask_for_too_many_cases(folder: Folder) -> None:
    with pytest.raises(SpecError, match=r"^s\.yaml:1:1: expands to 200,000 cases, at most 100,000 are allowed"):
        folder.cases(TENSOR + "dtypes: [float32, float64]\n", Overrides(samples=100_000))


def test_a_case_knows_where_its_outputs_stand(folder: Folder) -> None:
    (case,) = folder.cases(TENSOR + "outputs: [5]\n")
    assert (case.outputs, case.outputs_at) == ((5,), "s.yaml:3:1")
    (case,) = folder.cases(TENSOR)
    assert case.outputs_at == ""
