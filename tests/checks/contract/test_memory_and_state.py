"""GV401–GV413: inputs, state and memory of forward and backward."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._python_dispatch import _get_current_dispatch_mode

import gradverify
from gradverify.checks.contract.uninitialised import poisoned_memory
from gradverify.result import Verdict
from tests.checks.contract.support import X, Y, contract, failing, pair, product, remarked, sine
from tests.core.support import double

M = double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5]])


def test_input_overwritten_by_forward_fails() -> None:
    class Overwrites(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x.clone())
            x.mul_(2)
            return x / 2 * x / 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return 2 * g * ctx.saved_tensors[0]

    assert "GV401" in failing(contract(Overwrites.apply, X))


def test_input_marked_dirty_passes() -> None:
    class Doubles(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return 2 * g

    assert contract(Doubles.apply, X).findings == ()


def test_saved_input_overwritten_by_backward_fails() -> None:
    def through_data(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        x.data.cos_()
        return g * x

    result = contract(sine(through_data), X)
    assert failing(result) == {"GV402"}
    assert "backward modifies x in place" in result.message


def test_saved_intermediate_overwritten_by_backward_fails() -> None:
    class Saves(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x.cos())
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return ctx.saved_tensors[0].data.mul_(g).clone()

    result = contract(Saves.apply, X)
    assert failing(result) == {"GV402"}
    assert "saved tensor 0 of Saves" in result.message


@pytest.mark.parametrize("copies", [False, True])
def test_noncontiguous_inputs(copies: bool) -> None:
    def backward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        flat = x.contiguous() if copies else torch.as_strided(x, x.shape, (3, 1))
        return g * flat.cos()

    found = failing(contract(sine(backward), M))
    assert found == set() if copies else "GV403" in found


def test_sums_in_float32_may_depend_on_the_layout_of_float64_inputs() -> None:
    class Normed(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            narrow = x.float()
            return (narrow / narrow.square().sum(-1, keepdim=True)).double()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            norm = x.square().sum(-1, keepdim=True)
            return g / norm - 2 * x * (g * x).sum(-1, keepdim=True) / norm.square()

    values = torch.randn(6, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = contract(Normed.apply, values.requires_grad_())
    assert "GV403" not in failing(found)
    assert "GV601" in remarked(found)


def test_wrong_gradient_if_only_second_input_requires_grad_fails() -> None:
    def backward(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> Any:
        return g * y, g * (x if ctx.needs_input_grad[0] else y)

    result = contract(product(backward), X, Y)
    assert failing(result) == {"GV404"}
    assert "only y needs a gradient" in result.message


def test_a_forward_that_takes_a_gradient_by_one_input_need_not_run_without_it() -> None:
    def penalty(x: Tensor, w: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad((x * w).sin().sum(), x, create_graph=True)
        return slope.square().sum()

    assert failing(contract(penalty, X, Y)) == set()


def test_one_that_asks_for_it_itself_fails() -> None:
    def strict(x: Tensor, w: Tensor) -> Tensor:
        if not x.requires_grad:
            raise ValueError("x does not require grad")
        return x * w

    assert failing(contract(strict, X, Y)) == {"GV404"}


def test_gradients_only_for_inputs_that_need_them_pass() -> None:
    def backward(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> Any:
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None

    assert contract(product(backward), X, Y).findings == ()


def test_wrong_gradient_if_two_inputs_are_one_tensor_fails() -> None:
    def backward(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> Any:
        return (g * y, None) if x.data_ptr() == y.data_ptr() else (g * y, g * x)

    result = contract(product(backward), X, Y)
    assert failing(result) == {"GV405"}


def test_forward_random_despite_seed_is_inconclusive() -> None:
    class Draws(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.factor = random.SystemRandom().random()
            return x * ctx.factor

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.factor

    result = contract(Draws.apply, X)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [finding.code for finding in result.findings] == ["GV406"]


class Dropout(Function):
    keeps_its_mask = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, keeps: bool) -> Tensor:
        mask = torch.rand_like(x) < 0.5
        ctx.save_for_backward(mask if keeps else None)
        return x * mask

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return g * (torch.rand_like(g) < 0.5 if mask is None else mask), None


def test_dropout_mask_drawn_again_in_backward_fails_and_saved_mask_passes() -> None:
    point = torch.linspace(-1, 1, 20, dtype=torch.float64).requires_grad_()
    assert failing(contract(lambda x: Dropout.apply(x, False), point)) == {"GV407"}
    assert contract(lambda x: Dropout.apply(x, True), point).findings == ()


def test_differences_of_few_ulps_between_backwards_are_remarked() -> None:
    calls = iter(range(10**6))

    def backward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        return g * x.cos() * (1 + next(calls) % 3 * 2.0**-51)

    result = contract(sine(backward), X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == {"GV407"}


def test_state_on_class_fails() -> None:
    class Global(Function):
        x: Tensor

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            Global.x = x.detach()
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * Global.x.cos()

    assert failing(contract(Global.apply, X)) == {"GV408"}


def test_read_of_uninitialised_memory_fails() -> None:
    def half_written(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        gradient = torch.empty_like(x)
        gradient[: len(x) // 2] = (g * x.cos())[: len(x) // 2]
        return gradient

    def written(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        return torch.mul(g, x.cos(), out=torch.empty_like(x))

    assert failing(contract(sine(half_written), X)) == {"GV409"}
    assert failing(contract(sine(written), X)) == set()


def test_nan_left_in_freed_memory_does_not_hide_that_it_is_read() -> None:
    def unwritten(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        return torch.empty_like(x)

    def undefined(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        return torch.mul(g, torch.zeros_like(x) / 0, out=torch.empty_like(x))

    with poisoned_memory():  # as if all freed memory held it
        assert "GV409" in failing(contract(sine(unwritten), X))
        assert "GV409" not in failing(contract(sine(undefined), X))


def test_torch_determinism_settings_are_restored() -> None:
    contract(sine(lambda ctx, x, g: g * x.cos()), X)
    assert torch.get_deterministic_debug_mode() == 0
    assert not torch.are_deterministic_algorithms_enabled()


class Times:
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def times(self, g: Tensor) -> Tensor:
        return g * self.y


class Exp(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        y = x.exp()
        ctx.how = how
        if how == "attribute":
            ctx.y = y
        elif how == "list":
            ctx.kept = [{"y": y}]
        elif how == "closure":
            ctx.times = lambda g: g * y
        elif how == "partial":
            ctx.times = partial(torch.mul, y)
        elif how == "method":
            ctx.times = Times(y).times
        else:
            ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        if hasattr(ctx, "times"):
            return ctx.times(g), None
        y = {"attribute": lambda: ctx.y, "list": lambda: ctx.kept[0]["y"]}.get(ctx.how, lambda: ctx.saved_tensors[0])()
        return g * y, None


@pytest.mark.parametrize("how", ["attribute", "list", "closure", "partial", "method"])
def test_output_kept_on_ctx_fails(how: str) -> None:
    result = contract(lambda x: Exp.apply(x, how), X)
    assert failing(result) == {"GV410"}
    assert "save_for_backward" in result.message


def test_saved_output_passes_and_input_on_ctx_is_remarked() -> None:
    assert contract(lambda x: Exp.apply(x, "saved"), X).findings == ()

    class Keeps(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x = x
            return x.exp()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.x.exp()

    result = contract(Keeps.apply, X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == {"GV410"}


class Twice(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, refuses: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.calls, ctx.refuses = 0, refuses
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ctx.calls += 1
        if ctx.calls > 1 and ctx.refuses:
            raise RuntimeError("once only")
        return g * ctx.saved_tensors[0].cos() * ctx.calls, None


def test_second_backward_that_differs_fails_and_that_raises_is_remarked() -> None:
    assert failing(contract(lambda x: Twice.apply(x, False), X)) == {"GV411"}
    refusal = contract(lambda x: Twice.apply(x, True), X)
    assert refusal.verdict is Verdict.PASS
    assert "GV411" in remarked(refusal)


class Same(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        return {"itself": lambda: x, "view": lambda: x.view_as(x), "hidden": lambda: x.data}[how]()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


@pytest.mark.parametrize(("how", "codes"), [("itself", set()), ("view", set()), ("hidden", {"GV412"})])
def test_output_sharing_memory_with_input_is_remarked_if_hidden(how: str, codes: set[str]) -> None:
    result = contract(lambda x: Same.apply(x, how), X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == codes


class RowSum(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, squeezes: bool) -> Tensor:
        ctx.shape, ctx.squeezes = x.shape, squeezes
        return x.sum(0, keepdim=True)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        if ctx.squeezes:
            g = g.squeeze()
            return torch.stack([g] * ctx.shape[0]).view(ctx.shape[0], g.shape[0]), None
        return g.expand(ctx.shape), None


def test_backward_that_raises_at_size_one_is_a_remark() -> None:
    """At other inputs than those that are asked for, forward may take what nobody means."""
    result = contract(lambda x: RowSum.apply(x, True), M)
    assert (result.verdict, remarked(result)) == (Verdict.PASS, {"GV413"})
    assert contract(lambda x: RowSum.apply(x, False), M).findings == ()


class Rows(Function):
    """x times w, row by row in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, starts: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.starts = starts
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w = ctx.saved_tensors
        of_w = ctx.starts(w)
        for number, (row, entry) in enumerate(zip(x, g, strict=True)):
            of_w = of_w.copy_(entry * row) if number == 0 else of_w + entry * row
        return torch.outer(g, w), of_w, None


@pytest.mark.parametrize(("starts", "codes"), [(torch.empty_like, {"GV413"}), (torch.zeros_like, set())])
def test_gradient_that_no_row_has_written_is_a_remark(starts: Callable[[Tensor], Tensor], codes: set[str]) -> None:
    result = contract(lambda x, w: Rows.apply(x, w, starts), M, double([0.5, -2.0, 1.5])[: M.shape[1]])
    assert (result.verdict, remarked(result)) == (Verdict.PASS, codes)


def test_two_independent_outputs_pass() -> None:
    assert contract(pair(lambda ctx, x, y, g, h: (y * g + h, x * g + h)), X, Y).findings == ()


def test_fixed_size_is_not_tested_at_size_one() -> None:
    bias = torch.ones(3, dtype=torch.float64)

    class Shifted(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x + bias).square()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 2 * (g * (x + bias)).view(len(x), 3).view(x.shape)

    assert failing(contract(Shifted.apply, M)) == set()


class ZippedSum(Function):
    """Sum of rows of x times numbers; `zip` stops at the shorter of the two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: list[float]) -> Tensor:
        ctx.numbers, ctx.shape = numbers, x.shape
        total = x.new_zeros(x.shape[1:])
        for row, number in zip(x, numbers, strict=False):
            total = total + row * number
        return total

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return torch.stack([g * number for number in ctx.numbers]), None


class ZippedProduct(ZippedSum):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        grad = g.new_zeros(ctx.shape)
        for place, number in enumerate(ctx.numbers):
            grad[place] = g * number
        return grad, None


@pytest.mark.parametrize("numbers", [[0.5, -2.0], [0.5, -2.0, 3.0]])
@pytest.mark.parametrize("function", [ZippedSum, ZippedProduct])
def test_list_of_numbers_fixes_the_size_of_the_tensor_it_is_zipped_with(
    function: type[ZippedSum], numbers: list[float]
) -> None:
    rows = double([[0.3, -1.2, 0.7, 0.2], [2.1, -0.4, 1.5, 0.8], [1.1, 0.9, -0.6, 1.3]])[: len(numbers)]
    x = rows.detach().clone().requires_grad_()
    result = contract(lambda x: function.apply(x, numbers), x)
    assert result.verdict is Verdict.PASS
    assert "GV413" not in remarked(result)


class Interpolated(Function):
    """Values of a table between its entries: one entry has no neighbours, and forward clamps that away."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, at: Tensor) -> Tensor:
        low = at.floor().long().clamp(0, len(table) - 2)
        ctx.save_for_backward(table, low, at)
        return table[low] * (1 - at + low) + table[low + 1] * (at - low)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        table, low, at = ctx.saved_tensors
        of_table = torch.zeros_like(table).index_add(0, low, g * (1 - at + low)).index_add(0, low + 1, g * (at - low))
        return of_table, g * (table[low + 1] - table[low])


def test_a_size_of_one_that_backward_refuses_fails_no_right_function() -> None:
    table = double([0.3, -1.2, 0.7, 0.2, 1.5])
    result = contract(lambda table, at: Interpolated.apply(table, at), table, double([0.4, 2.7, 3.1]))
    assert result.verdict is Verdict.PASS
    assert "GV413" in remarked(result)


def test_squeeze_of_a_zipped_tensor_breaks_at_size_one() -> None:
    class Squeezes(ZippedSum):
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            used = ctx.numbers[: ctx.shape[0]]
            return torch.stack([g * number for number in used]).squeeze().view(ctx.shape[0], -1)[:, :4].squeeze(0), None

    x = double([[0.3, -1.2, 0.7, 0.2], [2.1, -0.4, 1.5, 0.8], [1.1, 0.9, -0.6, 1.3]])
    assert remarked(contract(lambda x: Squeezes.apply(x, [0.5, -2.0, 3.0]), x)) == {"GV413"}


@pytest.mark.parametrize("fixed", [torch.tensor([1, 0, 1, 1]), 3, torch.ones(3)])
def test_fixed_arguments_fit_the_inputs_at_every_call(fixed: Any) -> None:
    """A kernel that does not check its arguments would read beyond the end of a smaller input."""
    shapes = set()

    class Seen(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, fixed: Any) -> Tensor:
            shapes.add(x.shape)
            return 2 * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            return 2 * g, None

    contract(lambda x, fixed: Seen.apply(x, fixed), double([0.3, -1.2, 0.7]), fixed)
    assert shapes == {(3,)}


class Filtered(Function):
    """Multiply the n // 2 + 1 frequencies of n numbers by as many weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, weights)
        return torch.fft.irfft(torch.fft.rfft(x) * weights, n=len(x))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, weights = ctx.saved_tensors
        twice = torch.full((len(x) // 2 + 1,), 2.0, dtype=x.dtype)
        twice[0] = 1
        twice[len(x) // 2 + len(x) % 2 :] = 1
        frequencies = torch.fft.rfft(g)
        return torch.fft.irfft(frequencies * weights, n=len(x)), (
            twice * (frequencies * torch.fft.rfft(x).conj()).real / len(x)
        )


@pytest.mark.parametrize("n", [8, 9])
def test_size_that_fits_one_neighbour_only_is_not_free(n: int) -> None:
    x = torch.linspace(-1, 2, n, dtype=torch.float64)
    assert failing(contract(Filtered.apply, x, x[: n // 2 + 1].cos())) == set()


def reflected(u: Tensor) -> Tensor:
    """Return second differences, with entries beyond the ends reflected; empty if there is one entry."""
    wide = torch.cat([u[1:2], u, u[-2:-1]])
    return wide[2:] - 2 * u + wide[:-2]


class Reflected(Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        return reflected(u)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        n = len(g)
        gu = torch.nn.functional.pad(g[1:], (0, 1)) + torch.nn.functional.pad(g[:-1], (1, 0)) - 2 * g
        ends = torch.nn.functional.pad(g[:1], (1, n - 2)) + torch.nn.functional.pad(g[-1:], (n - 2, 1))
        return gu + ends


def test_outputs_that_become_empty_say_nothing_of_backward() -> None:
    assert failing(contract(Reflected.apply, torch.linspace(-1, 2, 6, dtype=torch.float64))) == set()


def test_output_overwritten_by_backward_is_not_reported_as_layout() -> None:
    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return grad * (1 - y.square_())

    assert failing(contract(Tanh.apply, X)) == {"GV402"}


class UntilTheMeanIsSmall(Function):
    """A root by Newton's method, until the mean of the squared steps is small; of no entries, that mean is nan."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y, squares = x.clone(), 1.0
        while not squares < 1e-24:
            step = (y * y.exp() - x) / (y.exp() * (1 + y))
            y, squares = y - step, float(step.square().mean())
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return g * y / (x * (1 + y))


def test_an_iteration_that_never_ends_for_no_entries_is_broken_off() -> None:
    x = double([0.3, 0.7, 1.1])
    assert contract(UntilTheMeanIsSmall.apply, x).verdict is Verdict.PASS


class OutsideOfModes(Function):
    """A kernel that cannot run while operations are observed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("observed")
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos()


def test_a_forward_whose_operations_cannot_be_counted_passes() -> None:
    result = contract(OutsideOfModes.apply, double([0.3, 0.7, 1.1]))
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def variance(x: Tensor) -> Tensor:
    """Return E[x²] - E[x]² of the rows, which cancels if the mean is large."""
    return (x * x).mean(-1) - x.mean(-1) ** 2


class Variance(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, in_memory_order: bool) -> Tensor:
        ctx.save_for_backward(x)
        return variance(x.mT.reshape(x.shape) if in_memory_order and x.stride(-1) > 1 else x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return 2 * g[:, None] * (x - x.mean(-1, keepdim=True)) / x.shape[-1], None


@pytest.mark.parametrize("mean", [1e4, 1e6])
def test_sums_that_cancel_may_differ_by_layout_as_much_as_rounding_changes_them(mean: float) -> None:
    for seed in range(3):
        steps = torch.randn(3, 64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        x = mean + steps * double([[1.0], [2.0], [3.0]])
        assert failing(contract(lambda x: Variance.apply(x, False), x)) == set()
        assert failing(contract(lambda x: Variance.apply(x, True), x)) == {"GV403"}


def test_a_gradient_that_is_added_and_returned_is_counted_twice() -> None:
    def backward(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
        found = grad * x.cos()
        x.grad = found.clone() if x.grad is None else x.grad + found
        return found

    result = contract(sine(backward), X)
    assert failing(result) == {"GV402"}
    assert ".backward() counts it twice" in result.message


class SeededDropout(torch.autograd.Function):
    """Dropout under a seed of its own: the mask is drawn in the order of memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            mask = (torch.rand_like(x) > 0.5).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def test_a_forward_with_a_seed_of_its_own_may_draw_in_the_order_of_memory() -> None:
    result = contract(lambda x: SeededDropout.apply(x, 7), torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
    assert (result.verdict, failing(result)) == (Verdict.PASS, set())


class AfterRecurrence(torch.nn.Module):
    def __init__(self, kind: type[torch.nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(3, 2)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        return sine(lambda ctx, x, grad: grad * x.cos())(self.layer(x)[0])


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_kernels_of_torch_are_asked_for_no_other_sizes(kind: type[torch.nn.RNNBase]) -> None:
    """With other sizes of their weights they end the process."""
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    result = gradverify.verify(AfterRecurrence(kind).double(), (x,), checks=("contract",)).checks[0]
    assert (result.verdict, "GV413" in remarked(result)) == (Verdict.PASS, False)
