"""Hand-written Functions and operators whose calls are recorded."""

import warnings

import torch


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, exponent):
        if exponent < 0:
            raise ValueError("a negative exponent")
        if exponent > 90:
            warnings.warn("a large exponent", stacklevel=3)
        ctx.save_for_backward(x)
        ctx.exponent = exponent
        return x**exponent

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.exponent * x ** (ctx.exponent - 1), None


power = Power.apply  # taken before anything is observed


class Lookup(torch.autograd.Function):
    """Wrong for repeated indices."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table[ids]

    @staticmethod
    def backward(ctx, grad):
        (ids,) = ctx.saved_tensors
        found = grad.new_zeros(ctx.shape)
        found[ids] = grad
        return found, None


class Join(torch.autograd.Function):
    @staticmethod
    def forward(dim, *parts):
        return torch.cat(parts, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim, *parts = inputs
        ctx.sizes = [part.shape[ctx.dim] for part in parts]

    @staticmethod
    def backward(ctx, grad):
        return (None, *grad.split(ctx.sizes, ctx.dim))


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, size, dtype):
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return x.expand(size).to(dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad.sum_to_size(ctx.shape).to(ctx.dtype), None, None


class Configured(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, options):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad, None


class Grouped(torch.autograd.Function):
    """Sums groups of entries: the size must be divisible."""

    @staticmethod
    def forward(ctx, x, groups):
        ctx.shape = x.shape
        return x.reshape(x.shape[0], groups, -1).sum(-1)

    @staticmethod
    def backward(ctx, grad):
        n, d = ctx.shape
        return grad[..., None].expand(n, grad.shape[1], d // grad.shape[1]).reshape(n, d), None


class Gated(torch.autograd.Function):
    """One half of each row times the other: an odd size is not refused where one half is of size 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        one, other = x.chunk(2, -1)
        return one * other

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        one, other = x.chunk(2, -1)
        return torch.cat([grad * other, grad * one], -1)


class Segments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ends):
        ctx.sizes = ends.diff(prepend=ends.new_zeros(1)).tolist()
        return torch.stack([part.sum(0) for part in x.split(ctx.sizes)])

    @staticmethod
    def backward(ctx, grad):
        return grad.repeat_interleave(torch.tensor(ctx.sizes), 0), None


@torch.library.custom_op("recorded::twice", mutates_args=())
def twice(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


twice.register_autograd(
    lambda ctx, grad: (grad * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)


@torch.library.custom_op("recorded::total", mutates_args=())
def total(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts)).sum(0)


total.register_autograd(
    lambda ctx, grad: ([grad] * ctx.count,),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "count", len(inputs[0])),
)


LIBRARY = torch.library.Library("recorded", "FRAGMENT")
LIBRARY.define("shifted(Tensor x, float by=1.0) -> Tensor")
LIBRARY.define("shifted.row(Tensor x, Tensor row) -> Tensor")
LIBRARY.define("outer(Tensor x) -> Tensor")
LIBRARY.define("unknown(Tensor x) -> Tensor")
LIBRARY.define("plain(Tensor x) -> Tensor")


class _Shifted(torch.autograd.Function):
    """The autograd kernel of an operator, as code in C++ has it: it calls the operator again, below autograd."""

    @staticmethod
    def forward(ctx, x, by=1.0):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.recorded.shifted(x, by)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _shifted(x, by=1.0):
    if by < 0:
        raise ValueError("a negative shift")
    return x + by


LIBRARY.impl("shifted", _Shifted.apply, "Autograd")
LIBRARY.impl("shifted", _shifted, "CPU")
LIBRARY.impl("shifted.row", lambda x, row: x + row, "CompositeImplicitAutograd")
LIBRARY.impl("unknown", torch.neg, "CPU")  # without a fake implementation, torch.compile cannot trace it
torch.library.register_autograd("recorded::unknown", lambda ctx, grad: -grad)
LIBRARY.impl("plain", lambda x: 2 * x, "CPU")
LIBRARY.impl("outer", lambda x: torch.ops.recorded.twice(torch.ops.recorded.shifted(x), 2.0), "CPU")
torch.library.register_fake("recorded::outer", torch.empty_like)
torch.library.register_autograd("recorded::outer", lambda ctx, grad: 2 * grad)


def real(*shape, **options):
    return torch.randn(*shape, requires_grad=True, **options)
