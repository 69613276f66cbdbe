"""What is to be run: frozen values that the spec language makes and the runner takes. No tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gradverify.result import CheckResult, ExpectedCheck, Exploration, Verdict
from gradverify.usage import BytesClaim

# What a spec without `checks` asks for; where a Function defines jvp or vmap, `contract` looks at them too.
DEFAULT_CHECKS = ("gradcheck", "gradgradcheck", "contract")
DEFAULT_CHECKS_WITH_REFERENCE = ("reference", "contract")  # of a spec that names a reference
DIFFERENCES_WITH_REFERENCE = "gradcheck"  # asked for beside them in float64 and complex128
CASE_DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
SHORT_DTYPES = {  # other names that people give to dtypes
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
    "int": "int32",
    "long": "int64",
}
DEVICE_KINDS = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")  # each may carry an index, as cuda:1
DEFAULT_DTYPES = ("float64",)
DEFAULT_DEVICES = ("cpu",)
DEFAULT_TIMEOUT = 60.0  # seconds


class TorchGradcheck(StrEnum):
    """When torch's own gradcheck runs beside ours."""

    SMALL = "small"  # where the Jacobian has at most 10^4 entries
    ALWAYS = "always"
    NEVER = "never"


class Float32Products(StrEnum):
    """How float32 matrix products and convolutions are computed on CUDA devices."""

    FULL = "full"  # in float32
    TF32 = "tf32"  # inputs rounded to 10 bits of mantissa


class Layout(StrEnum):
    """How a tensor lies in memory."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    STRIDED = "strided"
    EXPANDED = "expanded"
    CHANNELS_LAST = "channels_last"


class Constraint(StrEnum):
    """A set that an input's values must lie in."""

    POSITIVE = "positive"
    DISTINCT = "distinct"
    SYMMETRIC = "symmetric"
    POSITIVE_DEFINITE = "positive_definite"
    SIMPLEX = "simplex"
    UNIT_NORM = "unit_norm"
    TRIANGULAR = "triangular"
    ORTHOGONAL = "orthogonal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A named object in a Python file or module; exactly one of `file` and `module` is set."""

    file: str | None = None  # absolute path
    module: str | None = None  # dotted name
    name: str  # attribute, may be dotted
    written: str  # as the user wrote it


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    low: float
    high: float

    @classmethod
    def around(cls, constant: float) -> Uniform:
        """Return the distribution of numbers of the sign and the size of a constant; from -0.5 to 0.5 around zero."""
        low, high = sorted((constant / 2, 1.5 * constant)) if constant else (-0.5, 0.5)
        return cls(low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    low: int
    high: int  # exclusive, as in torch.randint


@dataclass(frozen=True, slots=True, kw_only=True)
class Bernoulli:
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Linspace:
    start: float
    end: float  # inclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation:
    """A random permutation of 0 … numel-1 along the last dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    values: Any  # nested lists of numbers, complex numbers as strings "1+2j"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    path: str  # absolute; .pt, .npy or .npz


@dataclass(frozen=True, slots=True, kw_only=True)
class Factory:
    """Python code that makes the input: called as `factory(**args)`."""

    target: Target
    args: Mapping[str, Any] = field(default_factory=dict)


Distribution = Normal | Uniform | Integers | Bernoulli | Linspace | Permutation
Origin = Distribution | Values | DataFile | Factory


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInput:
    """One input tensor: where its values come from and how it is laid out."""

    origin: Origin
    shape: tuple[int, ...] | None = None  # None where the origin brings its own
    sizes: tuple[int | str, ...] | None = None  # the shape as written, if it has names of `dims` in it
    dtype: str | None = None  # None: the case's dtype for floating values, the origin's own else
    requires_grad: bool | None = None  # None: floating and complex tensors are differentiated
    layout: Layout = Layout.CONTIGUOUS
    avoid: tuple[float, ...] = ()  # points that values keep a margin from
    constraint: Constraint | None = None
    constrained: bool = True  # perturbations stay on the constraint too


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    value: Any  # passed on as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeArgument:
    name: str  # float32 -> torch.float32; "case" -> the case's dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeArgument:
    size: tuple[int, ...]  # -> torch.Size
    sizes: tuple[int | str, ...] | None = None  # as written, if it has names of `dims` in it


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleArgument:
    items: tuple[Any, ...]  # plain values -> tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceArgument:
    name: str  # "case" -> the case's device


@dataclass(frozen=True, slots=True, kw_only=True)
class ListInput:
    items: tuple[Any, ...]  # of TensorInput; a list of tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInput:
    """One input that a factory makes, and that is no tensor."""

    made: TensorInput  # how: with a factory for its origin, whose tensors inside get these modifiers


INIT = "init."  # before the name of an argument of an nn.Module's constructor
Input = TensorInput | Literal | DtypeArgument | SizeArgument | TupleArgument | DeviceArgument | ListInput | ObjectInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """What may differ; None means the default for the dtype."""

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a check is to run: the one value that options travel in."""

    tolerances: Tolerances = Tolerances()
    seed: int = 0
    torch_gradcheck: TorchGradcheck = TorchGradcheck.SMALL
    max_elements: int = 100  # elements kept per finding
    max_evaluations: int = 2000  # calls of forward and backward that the search for wrong entries may take
    tf32: bool = False  # float32 matrix products may be computed in TF32


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the spec says should come out."""

    verdict: Verdict = Verdict.PASS  # of the case
    checks: Mapping[str, ExpectedCheck] = field(default_factory=dict)  # where given, of single checks, by name
    cause: str | None = None  # where given, named by some finding
    saved_bytes: BytesClaim | None = None  # where given, a limit on the bytes kept for backward


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """The sizes that a dimension may have."""

    low: int = 1
    high: int | None = None  # inclusive; None for no limit
    multiple_of: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """The values that an integer input may have: those from 0 to below `below`, and the special ones."""

    below: int | str | None = None  # a number, or an expression of `dims`; None: what the input has at most
    special: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreRules:
    """What inputs may become when they are changed in the search for a wrong gradient."""

    sizes: Mapping[str, SizeRange] = field(default_factory=dict)  # by the name of a dimension
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by the input's name, both ends inclusive
    indices: Mapping[str, IndexRange] = field(default_factory=dict)  # by the input's name
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # by the input's name
    require: str = ""  # condition over inputs and dims that every try satisfies; "" for none
    fixed: tuple[str, ...] = ()  # inputs and dims that stay as they are
    budget: int = 400  # legal tries


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """A try of an exploration that begins."""

    so_far: Exploration  # what was found before it
    number: int  # of its proposal, from 0; proposals that are not legal count too
    phrase: str  # what it changes
    memory: bytes = b""  # what else the search has to know to go on after it, pickled: its types need torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """The request to change a case's inputs, and where to go on if a worker was lost meanwhile."""

    budget: int = 0  # legal tries; 0 for the number in the case's rules
    strict: bool = False  # wrong numbers far outside the range of the inputs fail too
    folder: str = ""  # absolute; paths in specs of what is found are relative to it, absolute if it is ""
    after: Trying | None = None  # the try to go on after; None to begin
    checks: tuple[CheckResult, ...] = ()  # results of the case's checks, if they have been run
    seconds: float = 0.0  # that were spent until `after` was lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One combination of a spec document: everything a worker needs to know, and picklable."""

    id: str  # spec's name/case/device-dtype[-sampleN]
    draw_key: str  # the id's part that decides input values: no device, no dtype
    spec: str  # path of the spec as given on the command line
    line: int  # line of the case in it
    draft: str = ""  # why it is not run yet: it is skipped, and nothing of it is loaded; "" for a case that is run
    target: Target
    surrogate: Target | None = None  # the function that gradcheck and gradgradcheck take differences of, in its place
    reference: Target | None = None  # plain code that outputs and gradients are compared with
    init: Mapping[str, Any] | None = None  # arguments of an nn.Module's constructor
    inputs: Mapping[str, Input]  # forward's parameters in order
    outputs: tuple[int, ...] | None = None  # None: every differentiable one
    outputs_at: str = ""  # where the spec says so, as file:line:column
    stochastic: bool = False
    checks: tuple[str, ...] = DEFAULT_CHECKS
    tolerances: Mapping[str, Tolerances] = field(default_factory=dict)  # per check
    dtype: str = "float64"
    device: str = "cpu"
    sample: int = 0
    seed: int = 0
    timeout: float = DEFAULT_TIMEOUT  # seconds
    torch_gradcheck: TorchGradcheck = TorchGradcheck.SMALL
    max_elements: int = 100
    max_evaluations: int = Settings().max_evaluations
    tf32: bool = False  # float32 matrix products may be computed in TF32
    interpret: bool = False  # run in a process in which Triton's interpreter is switched on
    timed: bool = False  # forward and backward are timed too
    dims: Mapping[str, int] = field(default_factory=dict)  # named sizes
    explore: ExploreRules = ExploreRules()
    exploring: Exploring | None = None  # None: the inputs are judged as they are only
    expect: Expectation = Expectation()


def default_checks(*, has_reference: bool, dtype: str) -> tuple[str, ...]:
    """Return the checks of a case of this dtype whose spec names none."""
    if not has_reference:
        return DEFAULT_CHECKS
    is_double = dtype in ("float64", "complex128")
    return (*DEFAULT_CHECKS_WITH_REFERENCE, *((DIFFERENCES_WITH_REFERENCE,) if is_double else ()))


class TargetKind(StrEnum):
    """What a target turned out to be."""

    FUNCTION = "function"  # a torch.autograd.Function subclass
    CALLABLE = "callable"
    MODULE = "module"  # an nn.Module class


class ParameterKind(StrEnum):
    """How forward takes a parameter."""

    POSITIONAL = "positional"
    VAR_POSITIONAL = "var_positional"  # *args
    KEYWORD_ONLY = "keyword_only"
    VAR_KEYWORD = "var_keyword"  # **kwargs


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of forward."""

    name: str
    kind: ParameterKind
    has_default: bool
    annotation: str = ""  # the name of a class, as `int`, or what is written instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What forward takes, `ctx` and `self` left out."""

    kind: TargetKind
    parameters: tuple[Parameter, ...] | None  # in order; None where Python cannot tell, as for many builtins
    init: tuple[Parameter, ...] | None = None  # of a module's constructor, as above; None for anything else


class Absence(StrEnum):
    """Why there is no function to run."""

    MISSING = "missing"  # no such file, module or name: a mistake in the spec
    UNSUITABLE = "unsuitable"  # it is there, but is nothing that can be called: a mistake in the spec
    RAISED = "raised"  # the module raised, hung or crashed while it was imported: not the spec's mistake
    UNAVAILABLE = "unavailable"  # the module needs something that this machine lacks: its cases are skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetProblem:
    """Why a target could not be loaded."""

    absence: Absence
    message: str  # one sentence, without a full stop
    code: str = "GV901"  # of its cases' results, where the absence is not the spec's mistake
    names: tuple[str, ...] = ()  # what is there instead, nearest first
