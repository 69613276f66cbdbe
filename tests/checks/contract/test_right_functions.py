"""Right functions pass the contract check, and plain callables are checked through autograd."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import Verdict
from tests.checks.contract.support import X, Y, contract, failing, product, sine
from tests.core.support import ALONE, double
from tests.zoo.catalogue import ZOO
from tests.zoo.hand_written import HAND_WRITTEN
from tests.zoo.specimen import Specimen

OPS = Path(__file__).parent.parent.parent.parent / "specs" / "ops"
CHOSEN = {specimen.name: specimen for specimen in (*ZOO[::4], *HAND_WRITTEN)}


@pytest.mark.parametrize("specimen", CHOSEN.values(), ids=CHOSEN.keys())
def test_zoo_passes_or_is_inconclusive(specimen: Specimen) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = bind(specimen.function, specimen.inputs(0), names=specimen.names, name=specimen.name)
        result = run_check("contract", problem, ALONE)
    assert result.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE), [finding.message for finding in result.findings]
    assert result.evaluations.backward < 150


class Identity(Function):
    """Identity whose backward returns its cotangent itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Gather(Function):
    """Has an integer input and an output that is marked non-differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        norm = x.norm()
        ctx.mark_non_differentiable(norm)
        ctx.save_for_backward(index)
        ctx.size = len(x)
        return x[index], norm

    @staticmethod
    def backward(ctx: Any, g: Tensor, unused: Tensor) -> tuple[Tensor, None]:
        return g.new_zeros(ctx.size).index_add(0, ctx.saved_tensors[0], g), None


class Dense(Function):
    """Returns gradients of all inputs, also of those that do not require one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g @ w.mT, x.mT @ g


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(3, 2, dtype=torch.float64, generator=generator))
        self.norm = torch.nn.LayerNorm(2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(Dense.apply(x, self.weight))


M = double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5]])
RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "the cotangent itself": (Identity.apply, (X,)),
    "an integer input": (Gather.apply, (X, torch.tensor([4, 0, 0, 2]))),
    "gradients nobody asked for": (Dense.apply, (M, M.detach().mT.contiguous())),
    "a module": (Block(), (M,)),
    "several functions": (lambda x, y: Identity.apply(x) * sine(lambda ctx, x, g: g * x.cos())(y), (X, Y)),
    "one function twice": (lambda x: Identity.apply(Identity.apply(x) * x), (X,)),
    "a composite": (lambda x, y: functional.softmax(x * y, 0).cumsum(0), (X, Y)),
    "a composite with an in-place operation": (lambda x: x.clone().mul_(2).sin_(), (X,)),
    "dropout": (lambda x: functional.dropout(x, 0.5), (X,)),
    "a function of no input": (lambda x: Identity.apply(x) * 0, (X,)),
    "a tuple of views": (lambda x: x.view(5, 1).unbind(0), (X,)),
    "a scalar": (Identity.apply, (double(0.5),)),
    "an empty tensor": (Identity.apply, (torch.empty(0, 3, dtype=torch.float64, requires_grad=True),)),
}


@pytest.mark.parametrize(("function", "inputs"), RIGHT.values(), ids=RIGHT.keys())
def test_right_functions_have_no_finding(function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    result = contract(function, *inputs)
    assert result.verdict is Verdict.PASS
    assert result.findings == ()


def test_message_lists_what_was_not_checked_of_a_plain_callable() -> None:
    left_out = "; no custom Function in the graph, so what backward returns, saves and keeps was not looked at"
    assert contract(torch.sin, X).message == f"every promise kept{left_out}"
    assert contract(Identity.apply, X).message == "every promise kept"


def test_plain_callable_is_checked_through_autograd() -> None:
    def hooked(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda g: g.clamp(-1, 1))
        return y

    assert failing(contract(hooked, X)) == {"GV304"}


def test_function_without_gradient_is_skipped() -> None:
    assert contract(lambda x: x.detach(), X).verdict is Verdict.SKIP
    assert contract(torch.sin, X.detach()).findings[0].code == "GV907"


def test_backward_that_raises_is_an_error() -> None:
    def broken(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        raise ValueError("no backward here")

    result = contract(sine(broken), X)
    assert result.verdict is Verdict.ERROR
    assert result.findings[0].code == "GV903"


def test_wrong_factor_passes_the_contract() -> None:
    assert contract(product(lambda ctx, x, y, g: (2 * g * y, g * x)), X, Y).findings == ()


def ops(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"contract_ops_{name}", OPS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


OPS_AND_CODES = [
    ("clipped_relu", "ClippedReLUFunction", (X, 1.5), set()),
    ("clipped_relu", "IncorrectClippedReLU", (X, 1.5), set()),
    ("conditional_op", "ConditionalOp", (X,), set()),
    ("custom_exp", "CustomExp", (X,), set()),
    ("custom_relu", "CustomReLU", (X,), {"GV302"}),
    ("custom_squared_loss", "CustomSquaredLoss", (double([0.5, 0.0, 1.0]), double([0.5, 0.05, 1.2])), {"GV302"}),
    ("memory_efficient_sigmoid", "MemoryEfficientSigmoid", (X,), set()),
    ("my_complex_function", "MyComplexFunction", (X,), {"GV312"}),
    ("my_custom_function", "MyCustomFunction", (X, Y), set()),
    ("my_exp", "MyExp", (X,), set()),
    ("smooth_round", "SmoothRound", (X,), set()),
]


@pytest.mark.parametrize(
    ("file", "name", "inputs", "codes"), OPS_AND_CODES, ids=[name for _, name, _, _ in OPS_AND_CODES]
)
def test_ops_of_specs_have_expected_codes(file: str, name: str, inputs: tuple[Any, ...], codes: set[str]) -> None:
    result = contract(getattr(ops(file), name).apply, *inputs)
    assert failing(result) == codes
    assert {finding.code for finding in result.findings} == codes


@pytest.mark.parametrize("lazy", [lambda z: z.conj(), lambda z: z.conj().imag])
def test_output_with_conjugate_or_negative_bit_passes(lazy: Callable[[Tensor], Tensor]) -> None:
    class Lazy(Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return lazy(z)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g.conj() if g.is_complex() else torch.complex(torch.zeros_like(g), -g)

    point = torch.complex(X.detach(), Y.detach()).requires_grad_()
    assert contract(Lazy.apply, point).findings == ()


def test_dropout_that_draws_in_memory_order_passes() -> None:
    class Dropout(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            mask = torch.rand_like(x) < 0.5
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

    point = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4).requires_grad_()
    assert contract(Dropout.apply, point).findings == ()


def _in_half(precision: torch.dtype) -> type[Function]:
    """Return x @ w for float32 tensors, computed in half precision."""

    class Half(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            x, w = x.to(precision), w.to(precision)
            ctx.save_for_backward(x, w)
            return (x @ w).float()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            g = g.to(precision)
            return (g @ w.T).float(), (x.T @ g).float()

    return Half


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(5))
def test_half_precision_kernel_with_float32_inputs_passes(precision: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2))
    assert failing(contract(_in_half(precision).apply, x, w)) == set()

    def cast(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ w).float()

    assert failing(contract(cast, x, w)) == set()


def test_nonlinear_backward_in_half_precision_fails() -> None:
    class Forgets(_in_half(torch.bfloat16)):  # type: ignore[misc]
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            g = g.to(torch.bfloat16)
            return (g.abs() @ w.T).float(), (x.T @ g).float()

    x, w = (torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    assert failing(contract(Forgets.apply, x, w)) & {"GV301", "GV303"}


def test_sparse_gradients_and_empty_inputs_pass() -> None:
    weight = torch.randn(5, 2, dtype=torch.float64).requires_grad_()
    rows = torch.tensor([0, 2])
    assert contract(lambda w: functional.embedding(rows, w, sparse=True), weight).verdict is Verdict.PASS

    class Rows(Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor) -> Tensor:
            ctx.shape = w.shape
            return w[rows]

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return torch.sparse_coo_tensor(rows.unsqueeze(0), g, ctx.shape)

    assert contract(Rows.apply, weight).verdict is Verdict.PASS
    assert contract(torch.sum, torch.zeros(0, dtype=torch.float64).requires_grad_()).verdict is Verdict.PASS
