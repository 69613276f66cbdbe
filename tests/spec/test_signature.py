"""Mistakes that only show once a worker has loaded the targets."""

from __future__ import annotations

from dataclasses import replace

from gradverify.case import Absence, Parameter, ParameterKind, Signature, Target, TargetKind, TargetProblem
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.read import read_paths
from gradverify.spec.signature import check_signatures, targets_of
from tests.spec.support import FUNCTION, Folder

TEXT = FUNCTION + "inputs:\n  x: {shape: [2]}\n  clip: 2.0\n"


def parameter(name: str, kind: ParameterKind = ParameterKind.POSITIONAL, has_default: bool = False) -> Parameter:
    return Parameter(name=name, kind=kind, has_default=has_default)


def signature(*parameters: Parameter, kind: TargetKind = TargetKind.FUNCTION) -> Signature:
    return Signature(kind=kind, parameters=parameters)


def errors(folder: Folder, text: str, found: Signature | TargetProblem, name: str = "F") -> list[str]:
    folder.write("s.yaml", text)
    reading = read_paths(["s.yaml"])
    assert not reading.errors
    cases = expand(reading.specs)
    loaded = {target: found for case in cases for target in targets_of(case) if target.name == name}
    return [str(error).removeprefix("s.yaml:") for error in check_signatures(reading.specs, cases, loaded)]


def test_names_that_fit_are_no_mistake(folder: Folder) -> None:
    found = signature(parameter("x"), parameter("clip"), parameter("slope", has_default=True))
    assert errors(folder, TEXT, found) == []


def test_a_name_that_forward_does_not_have_and_one_that_is_missing(folder: Folder) -> None:
    assert errors(folder, TEXT, signature(parameter("x"), parameter("clip_val"))) == [
        "2:1: inputs: `clip_val` is missing, `forward` has no default for it",
        "4:3: inputs.clip: `forward` has no parameter `clip` (did you mean `clip_val`?)",
    ]


def test_names_are_listed_where_none_is_near(folder: Folder) -> None:
    found = signature(parameter("x"), parameter("weight", has_default=True), kind=TargetKind.CALLABLE)
    assert errors(folder, TEXT, found) == ["4:3: inputs.clip: `F` has no parameter `clip` (it takes: x, weight)"]


def test_ctx_is_left_out(folder: Folder) -> None:
    text = FUNCTION + "inputs: {ctx: null, x: 1}\n"
    expected = ["2:10: inputs.ctx: `forward` has no parameter `ctx` (leave `ctx` out)"]
    assert errors(folder, text, signature(parameter("x"))) == expected


def test_further_positional_and_keyword_parameters(folder: Folder) -> None:
    tensors = parameter("tensors", ParameterKind.VAR_POSITIONAL)
    options = parameter("options", ParameterKind.VAR_KEYWORD)
    text = FUNCTION + "inputs: {tensors: [{shape: [2]}, {shape: [2]}], extra: 1}\n"
    assert errors(folder, text, signature(tensors, options)) == []
    alone = FUNCTION + "inputs: {tensors: {shape: [2]}}\n"
    assert errors(folder, alone, signature(tensors)) == ["2:10: inputs.tensors: `*tensors` of `forward` takes a list"]


def test_nothing_is_said_of_a_signature_that_python_cannot_tell(folder: Folder) -> None:
    assert errors(folder, TEXT, Signature(kind=TargetKind.CALLABLE, parameters=None)) == []


def test_init_is_for_modules(folder: Folder) -> None:
    text = FUNCTION + "init: {width: 3}\ninputs: {x: 1}\n"
    assert errors(folder, text, signature(parameter("x"), kind=TargetKind.MODULE)) == []
    expected = ["2:1: init: `ops/relu.py:F` is no nn.Module class, so there is nothing to construct"]
    assert errors(folder, text, signature(parameter("x"))) == expected


def test_arguments_of_the_constructor(folder: Folder) -> None:
    init = (parameter("width"), parameter("bias", has_default=True), parameter("more", ParameterKind.VAR_POSITIONAL))
    found = Signature(kind=TargetKind.MODULE, parameters=(parameter("x"),), init=init)
    fits, odd, none = (
        FUNCTION + f"inputs: {{x: 1}}\n{init}" for init in ("init: {width: 3}\n", "init: {widht: 3}\n", "")
    )
    assert errors(folder, fits, found) == []
    assert errors(folder, odd, found) == [
        "3:1: init: `width` is missing, the constructor of `F` has no default for it",
        "3:8: init.widht: the constructor of `F` has no parameter `widht` (did you mean `width`?)",
    ]
    assert errors(folder, none, found) == [
        "1:1: init: `width` is missing, the constructor of `F` has no default for it"
    ]
    misplaced = FUNCTION + "init: {width: 3}\ninputs: {x: 1, bias: true}\n"
    assert errors(folder, misplaced, found) == [
        "3:16: inputs.bias: `forward` has no parameter `bias` (the constructor has one: write it under `init`)"
    ]
    options = replace(found, init=(*init, parameter("options", ParameterKind.VAR_KEYWORD)))
    assert errors(folder, fits.replace("3}", "3, extra: 1}"), options) == []
    assert errors(folder, odd, replace(found, init=None)) == []


def test_arguments_of_a_factory(folder: Folder) -> None:
    made = signature(parameter("n"), parameter("scale", has_default=True), kind=TargetKind.CALLABLE)
    written = "{factory: 'ops/conv.py:make', args: {m: 3, scale: 1}}"
    text = FUNCTION + f"inputs:\n  x: {written}\n  y: [{written}, {{factory: 'ops/conv.py:make', args: {{n: 3}}}}]\n"
    assert errors(folder, text, made, name="make") == [
        "3:16: inputs.x.factory: `n` is missing, `make` has no default for it",
        "3:43: inputs.x.args.m: `make` has no parameter `m` (it takes: n, scale)",
        "4:17: inputs.y[0].factory: `n` is missing, `make` has no default for it",
        "4:44: inputs.y[0].args.m: `make` has no parameter `m` (it takes: n, scale)",
    ]


def test_a_target_that_is_not_there(folder: Folder) -> None:
    missing = TargetProblem(absence=Absence.MISSING, message="`ops/relu.py` has no `F`", names=("ReLU", "FF"))
    assert errors(folder, TEXT, missing) == ["1:11: function: `ops/relu.py` has no `F` (did you mean `FF`?)"]
    far = TargetProblem(absence=Absence.UNSUITABLE, message="`F` is a number", names=("ReLU", "Clip"))
    assert errors(folder, TEXT, far) == ["1:11: function: `F` is a number (there is: ReLU, Clip)"]


def test_a_module_that_raised_is_no_mistake_of_the_spec(folder: Folder) -> None:
    raised = TargetProblem(absence=Absence.RAISED, message="ValueError: \x1b[2J")
    assert errors(folder, TEXT, raised) == []


def test_factories_are_targets_too(folder: Folder) -> None:
    text = (
        FUNCTION + "inputs:\n  x: [{shape: [2]}, {factory: 'ops/conv.py:make'}]\n  y: {factory: 'ops/conv.py:make'}\n"
    )
    missing = TargetProblem(absence=Absence.MISSING, message="`ops/conv.py` has no `make`")
    assert errors(folder, text, missing, name="make") == [
        "3:31: inputs.x[1].factory: `ops/conv.py` has no `make`",
        "4:16: inputs.y.factory: `ops/conv.py` has no `make`",
    ]


def test_mistakes_are_said_once_and_where_they_stand(folder: Folder) -> None:
    text = TEXT + "samples: 3\ncases:\n  a: {}\n  b: {inputs: {w: 1}}\n"
    assert errors(folder, text, signature(parameter("x"))) == [
        "4:3: inputs.clip: `forward` has no parameter `clip` (it takes: x)",
        "8:16: cases.b.inputs.w: `forward` has no parameter `w` (it takes: x)",
    ]


def test_cases_that_do_not_run_are_not_judged(folder: Folder) -> None:
    folder.write("s.yaml", TEXT)
    reading = read_paths(["s.yaml"])
    target = Target(file=str(folder.path / "ops" / "relu.py"), name="F", written="ops/relu.py:F")
    loaded = {target: signature()}
    assert check_signatures(reading.specs, expand(reading.specs, Overrides(checks=())), loaded) == ()


SURROGATE = TEXT + "surrogate: ops/relu.py:soft\n"


def test_a_surrogate_that_is_not_there(folder: Folder) -> None:
    absent = TargetProblem(absence=Absence.MISSING, message="ops/relu.py has no `soft`", names=("soft_relu", "F"))
    assert errors(folder, SURROGATE, absent, "soft") == [
        "5:12: surrogate: ops/relu.py has no `soft` (did you mean `soft_relu`?)"
    ]


def test_a_surrogate_takes_the_arguments_of_forward(folder: Folder) -> None:
    found = signature(parameter("x"), parameter("clip"), kind=TargetKind.CALLABLE)
    assert errors(folder, SURROGATE, found, "soft") == []
    other = signature(parameter("x"), parameter("clip_val"), kind=TargetKind.CALLABLE)
    assert errors(folder, SURROGATE, other, "soft") == [
        "5:12: surrogate: `clip_val` is missing, the surrogate `soft` has no default for it",
        "5:12: surrogate: the surrogate `soft` has no parameter `clip` (did you mean `clip_val`?)",
    ]


def test_neither_a_surrogate_nor_its_function_is_a_module(folder: Folder) -> None:
    module = signature(parameter("x"), parameter("clip"), kind=TargetKind.MODULE)
    assert errors(folder, SURROGATE, module, "soft") == [
        "5:12: surrogate: `ops/relu.py:soft` is an nn.Module class (a surrogate is a function)"
    ]
    assert errors(folder, SURROGATE, module) == [
        "5:12: surrogate: `ops/relu.py:F` is an nn.Module class, and a surrogate has no parameters "
        "(write a function that takes them as arguments)"
    ]


REFERENCE = TEXT + "reference: ops/relu.py:plain\n"


def test_a_reference_takes_the_arguments_of_forward_by_name(folder: Folder) -> None:
    found = signature(parameter("x"), parameter("clip_val"), kind=TargetKind.CALLABLE)
    assert errors(folder, REFERENCE, found, "plain") == [
        "5:12: reference: `clip_val` is missing, the reference `plain` has no default for it",
        "5:12: reference: the reference `plain` has no parameter `clip` (did you mean `clip_val`?)",
    ]
    fitting = signature(parameter("x"), parameter("clip"), kind=TargetKind.CALLABLE)
    assert errors(folder, REFERENCE, fitting, "plain") == []


def test_a_reference_with_other_arguments_is_one_mistake(folder: Folder) -> None:
    found = signature(parameter("input"), parameter("limit"), kind=TargetKind.CALLABLE)
    assert errors(folder, REFERENCE, found, "plain") == [
        "5:12: reference: the reference `plain` takes input, limit, but the inputs are x, clip "
        "(it takes the same arguments by the same names)"
    ]


def test_a_reference_of_a_function_that_cannot_be_loaded_may_take_its_parameters(folder: Folder) -> None:
    raised = TargetProblem(absence=Absence.RAISED, message="importing ops/relu.py raised ZeroDivisionError")
    takes_weight = signature(parameter("x"), parameter("clip"), parameter("weight"), kind=TargetKind.CALLABLE)
    folder.write("s.yaml", REFERENCE)
    reading = read_paths(["s.yaml"])
    cases = expand(reading.specs)
    loaded = {target: raised if target.name == "F" else takes_weight for case in cases for target in targets_of(case)}
    assert not any("weight" in str(error) for error in check_signatures(reading.specs, cases, loaded))


def test_a_reference_that_is_not_there(folder: Folder) -> None:
    absent = TargetProblem(absence=Absence.MISSING, message="ops/relu.py has no `plain`", names=("plane",))
    assert errors(folder, REFERENCE, absent, "plain") == [
        "5:12: reference: ops/relu.py has no `plain` (did you mean `plane`?)"
    ]


def test_checks_are_chosen_by_dtype_if_there_is_a_reference(folder: Folder) -> None:
    folder.write("s.yaml", REFERENCE + "dtypes: [float64, bfloat16]\n")
    double, low = expand(read_paths(["s.yaml"]).specs)
    assert double.checks == ("reference", "contract", "gradcheck")
    assert low.checks == ("reference", "contract")


def test_only_cases_on_the_cpu_are_interpreted(folder: Folder) -> None:
    folder.write("s.yaml", REFERENCE + "devices: [cpu, cuda]\ninterpret: true\n")
    assert [case.interpret for case in expand(read_paths(["s.yaml"]).specs)] == [True, False]
