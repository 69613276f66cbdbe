"""What a package's own tests look like: values of forward, and that backward runs."""

import torch
from handmade.activation import ClippedReLU, Leaky, Slopes, Swish
from handmade.operators import cube, joined
from handmade.tensors import Lookup, Recomputed, WeightedSum


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_clipped_relu():
    x = leaf(32, 8)
    y = ClippedReLU.apply(x, 1.5)
    y.sum().backward()
    assert y.max() <= 1.5
    assert x.grad is not None


def test_swish():
    for rows in (16, 64):
        x = leaf(rows, 8)
        torch.testing.assert_close(Swish.apply(x, 1.0), torch.nn.functional.silu(x))


def test_leaky():
    x = leaf(6, 4)
    Leaky.apply(x, Slopes(negative=0.1)).sum().backward()
    assert x.grad.min() == torch.tensor(0.1)


def test_weighted_sum():
    a, b, c = leaf(4, 5), leaf(4, 5), leaf(4, 5)
    WeightedSum.apply(0.5, a, b, c).sum().backward()
    assert torch.equal(a.grad, torch.full((4, 5), 0.5))


def test_lookup():
    weight = leaf(20, 8)
    index = torch.tensor([[3, 3, 19], [0, 7, 1]])
    Lookup.apply(weight, index).sum().backward()
    assert weight.grad[3, 0] == 2


def test_recomputed():
    x = leaf(7, 3)
    Recomputed.apply(x, torch.nn.Linear(3, 5)).sum().backward()
    assert x.grad.shape == x.shape


def test_cube():
    cube(leaf(12)).sum().backward()


def test_joined():
    a, b = leaf(3, 4), leaf(5)
    joined([a, b], 3.0).sum().backward()
    assert torch.equal(b.grad, torch.full((5,), 3.0))
