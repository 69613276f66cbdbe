"""Of inputs that run, those are inferred that show most: gradients that are not zero, and code that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.author.inferring import inferred, shapes

MODULE = """
import torch
from torch.autograd import Function
from torch.nn import functional


class Euler(Function):
    "Runs for times of one entry too, where the loops do not."

    @staticmethod
    def forward(ctx, start, w, times):
        states = [start]
        for i in range(len(times) - 1):
            states.append(states[-1] + (times[i + 1] - times[i]) * (states[-1] @ w))
        ctx.save_for_backward(w, times, *states)
        return states[-1].clone()

    @staticmethod
    def backward(ctx, g):
        w, times, *states = ctx.saved_tensors
        of_w, of_times = torch.zeros_like(w), torch.zeros_like(times)
        for i in reversed(range(len(times) - 1)):
            step = times[i + 1] - times[i]
            slope = (g * (states[i] @ w)).sum()
            of_times[i + 1] += slope
            of_times[i] -= slope
            of_w += step * states[i].mT @ g
            g = g + step * g @ w.mT
        return g, of_w, of_times


class Shuffle(Function):
    "The identity for a factor of 1."

    @staticmethod
    def forward(ctx, x, factor: int):
        n, c, h, w = x.shape
        ctx.factor = factor
        return functional.pixel_shuffle(x, factor) if c % factor**2 == 0 else x[:, :, None].squeeze(3)

    @staticmethod
    def backward(ctx, g):
        return functional.pixel_unshuffle(g, ctx.factor), None


class Convolution(Function):
    "Runs for a weight of the shape of x too, where there is one place for it."

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return functional.conv1d(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        of_weight = torch.einsum("bol,bclk->ock", g, x.unfold(-1, weight.shape[-1], 1))
        return functional.conv_transpose1d(g, weight), of_weight


class Cut(Function):
    "Without a length, the padding in backward does not run."

    @staticmethod
    def forward(ctx, x, length=None):
        ctx.length, ctx.size = length, x.shape[-1]
        return x[..., :length].exp().log()

    @staticmethod
    def backward(ctx, g):
        if ctx.length is not None:
            g = functional.pad(g, (0, ctx.size - g.shape[-1]))
        return g, None


class Listed(Function):
    "For a list of tensors, autograd never calls its backward."

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("start the other processes first")


class Overrun(Function):
    "For a y of one dimension; with another it returns whatever is in memory, which a counter stands for."

    calls = 0

    @staticmethod
    def forward(ctx, x, y):
        Overrun.calls += 1
        ctx.shape = y.shape
        return x + y if y.dim() == 1 else x + Overrun.calls

    @staticmethod
    def backward(ctx, g):
        return g, g.sum_to_size(ctx.shape)


class Counted(Function):
    "No two calls are equal."

    calls = 0

    @staticmethod
    def forward(ctx, x):
        Counted.calls += 1
        return x + Counted.calls % 2

    @staticmethod
    def backward(ctx, g):
        return g


class Refused(Counted):
    @staticmethod
    def backward(ctx, g):
        return g, g, g


class Dropout(Function):
    "Random by design."

    @staticmethod
    def forward(ctx, x, y):
        ctx.kept = torch.rand_like(x) < 0.5
        return x * ctx.kept + y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.kept, g


class Divergence(Function):
    "With a mask for y, backward rounds its gradient to whole numbers."

    @staticmethod
    def forward(ctx, x: torch.Tensor, y: torch.Tensor):
        ctx.save_for_backward(y)
        return product(x, y).sum()

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        gradient = torch.empty_like(y)
        gradient.copy_(y)
        return g * gradient, None


class Kept(Function):
    "For a mask, although real numbers run too."

    @staticmethod
    def forward(ctx, x: torch.Tensor, keep: torch.Tensor):
        factor = keep.to(x.dtype)
        ctx.save_for_backward(factor)
        return product(x, factor)

    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        return g * factor, None


def product(x, y):
    return x * y


class Sign(Function):
    "Its gradient is zero everywhere."

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("showing") / "functions.py"
    place.write_text(MODULE, encoding="utf-8")
    return place


def test_gradients_that_are_not_zero_are_preferred(module: Path) -> None:
    start, w, times = shapes(inferred(module, "Euler"))
    assert w == [start[-1], start[-1]]
    assert len(times) == 1 and times[0] > 1


def test_a_number_at_which_forward_is_not_the_identity_is_preferred(module: Path) -> None:
    assert inferred(module, "Shuffle").inputs["factor"] > 1


def test_a_kernel_that_moves_is_preferred(module: Path) -> None:
    x, weight = shapes(inferred(module, "Convolution"))
    assert weight[-1] < x[-1]


def test_inputs_at_which_more_of_the_code_runs_are_preferred(module: Path) -> None:
    assert "length" in inferred(module, "Cut").inputs


def test_inputs_at_which_two_calls_agree_are_preferred(module: Path) -> None:
    _, y = shapes(inferred(module, "Overrun"))
    assert len(y) == 1


def test_a_function_that_never_repeats_is_inferred(module: Path) -> None:
    assert shapes(inferred(module, "Counted"))


def test_real_numbers_are_preferred_to_a_mask_that_nothing_asks_for(module: Path) -> None:
    assert inferred(module, "Divergence").inputs["y"] == {"shape": ["n", "d"]}
    assert inferred(module, "Kept").inputs["keep"]["dtype"] == "bool"


def test_inputs_at_which_two_calls_differ_are_a_draft_where_autograd_refuses_the_gradient(module: Path) -> None:
    assert inferred(module, "Refused").reason.startswith("could not infer x")


def test_a_function_that_is_random_by_design_is_inferred_as_any_other(module: Path) -> None:
    assert shapes(inferred(module, "Dropout")) == [[3, 4], [3, 4]]


def test_a_gradient_that_is_always_zero_is_inferred(module: Path) -> None:
    assert shapes(inferred(module, "Sign")) == [[3, 4]]


def test_inputs_at_which_backward_is_never_called_do_not_count(module: Path) -> None:
    assert "start the other processes first" in inferred(module, "Listed").reason
