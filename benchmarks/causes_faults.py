"""Faults of known kinds, each with the cause that should be named, and faults of no known kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from benchmarks.planting import Claim, linear
from benchmarks.subject import Subject
from gradverify.core.model.coordinates import Block
from gradverify.core.model.problem import call
from gradverify.errors import EvaluationError

UNKNOWN = "(no known kind)"
_MIN_SIZE = 6  # fewest coordinates for a fault in a region


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One wrong backward and the cause that should be named."""

    kind: str  # a cause, or UNKNOWN
    variant: str
    claim: Claim


Change = Callable[[Subject, Tensor, Generator], Tensor | None]


def faults(subject: Subject, seed: int) -> Iterator[Planted]:
    """Yield every fault that can occur in the subject."""
    generator = torch.Generator().manual_seed(seed)
    for kind, variant, change in (*_KNOWN, *_UNKNOWN):
        wrong = change(subject, subject.jacobian.clone(), generator)
        if wrong is not None and not torch.equal(wrong, subject.jacobian):
            yield Planted(kind=kind, variant=variant, claim=linear(wrong))
    yield from _cotangent_ignored(subject)
    yield from _rounded(subject)


def _rounded(subject: Subject) -> Iterator[Planted]:
    """Yield backwards that round their gradient, if this changes the Jacobian; float32 would be within tolerance."""
    for dtype in (torch.bfloat16, torch.float16):
        if not torch.equal(subject.jacobian.to(dtype).to(subject.jacobian.dtype), subject.jacobian):
            yield Planted(
                kind="low-precision-backward",
                variant=str(dtype).removeprefix("torch."),
                claim=lambda cotangent, dtype=dtype: (cotangent @ subject.jacobian).to(dtype).to(cotangent.dtype),
            )


def _cotangent_ignored(subject: Subject) -> Iterator[Planted]:
    block = _largest(subject)
    region = _above(subject, block, 0.6)
    if region is not None:
        for variant, answer in (
            ("a constant", torch.full_like(subject.point, -0.5)),
            ("ones", subject.jacobian.sum(0)),
        ):
            yield Planted(
                kind="missing-cotangent",
                variant=f"{variant} in a region",
                claim=lambda cotangent, answer=answer: torch.where(region, answer, cotangent @ subject.jacobian),
            )
    yield Planted(
        kind="missing-cotangent",
        variant="a constant added",
        claim=lambda cotangent: cotangent @ subject.jacobian + 0.1,
    )


def _largest(subject: Subject) -> Block:
    return max(subject.inputs, key=lambda block: len(subject.point[block.coordinates]))


def _above(subject: Subject, block: Block, quantile: float) -> Tensor | None:
    """Mask (n,) of the block's coordinates with values above the quantile; None if the block is too small."""
    values = subject.point[block.coordinates]
    region = torch.zeros_like(subject.point, dtype=torch.bool)
    region[block.coordinates] = values > values.quantile(quantile)
    return region if len(values) >= _MIN_SIZE else None


def _times(factor: float) -> Change:
    return lambda subject, wrong, generator: factor * wrong


def _in_region(factor: float, *, two_sided: bool = False) -> Change:
    def change(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
        block = _largest(subject)
        region = _above(subject, block, 0.6)
        if region is None:
            return None
        if two_sided:
            values = subject.point[block.coordinates]
            region[block.coordinates] |= values < values.quantile(0.3)
        touched = int((wrong[:, region] != 0).any(0).sum())
        wrong[:, region] *= factor
        return wrong if touched >= 2 else None

    return change


def _reduced_count(subject: Subject, wrong: Tensor) -> Tensor | None:
    """Return the number of non-zero entries per row if it is the same for all rows; None if this is no reduction."""
    counts = (wrong != 0).sum(1)
    alike = len(subject.inputs) == 1 and bool((counts == counts[0]).all()) and len(wrong) < wrong.shape[1]
    return counts[0] if alike and int(counts[0]) >= 3 else None


def _mean(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    count = _reduced_count(subject, wrong)
    return None if count is None else wrong / count


def _sum(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    count = _reduced_count(subject, wrong)
    return None if count is None else wrong * count


def _bessel(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return the entries times (n - 1)/n, where n is the number of inputs of each output."""
    count = _reduced_count(subject, wrong)
    return None if count is None else wrong * (count - 1) / count


def _unmasked(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    dead = (wrong == 0).all(0) & subject.defined.all(0)
    if not bool(dead.any()):
        return None
    if wrong.shape[0] == wrong.shape[1]:
        return wrong + torch.diag(dead.to(wrong.dtype))
    filling = torch.randn(len(wrong), 1, generator=generator, dtype=wrong.dtype)
    return torch.where(dead, filling, wrong)


def _is_flat(subject: Subject, wrong: Tensor) -> bool:
    """True if the Jacobian is square and zero: an elementwise function that is constant between jumps."""
    return len(wrong) == wrong.shape[1] and len(subject.inputs) == 1 and not bool(wrong.any())


def _identity(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    return torch.eye(len(wrong), dtype=wrong.dtype) if _is_flat(subject, wrong) else None


def _surrogate(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    return torch.diag(1 - subject.point.tanh() ** 2) if _is_flat(subject, wrong) else None


def _at_the_output(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return an elementwise function's derivatives evaluated at the output instead of the input."""
    diagonal = len(subject.inputs) == len(subject.outputs) == 1 and subject.inputs[0].step == 1
    if not diagonal or not torch.equal(wrong, wrong.diagonal().diag()) or _is_flat(subject, wrong):
        return None
    with torch.enable_grad():
        there = _output(subject, [primal.tensor for primal in subject.problem.primals]).detach().clone()
        try:
            again = _output(subject, [there.requires_grad_()])
        except EvaluationError:
            return None  # the function does not accept its output as an input
    return torch.diag(torch.autograd.grad(again.sum(), there)[0].flatten())


def _output(subject: Subject, inputs: Sequence[Tensor]) -> Tensor:
    """Return the first judged output of the function."""
    return next(output.tensor for output in call(subject.problem, inputs) if output.name == subject.kept[0])


def _unmasked_triangle(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    square = wrong.shape[0] == wrong.shape[1]
    triangular = square and bool((wrong.tril() == wrong).all()) and not bool((wrong == wrong.diagonal().diag()).all())
    return wrong[-1].expand_as(wrong).clone() if triangular else None


def _unmasked_band(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return an identity Jacobian for a forward that keeps only a band of a matrix."""
    one = len(subject.inputs) == len(subject.outputs) == 1 and len(subject.inputs[0].shape) == 2
    return torch.eye(len(wrong), dtype=wrong.dtype) if one and "band" in subject.name else None


def _first_output(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    for block in subject.inputs if len(subject.outputs) == 1 else ():
        part = wrong[:, block.coordinates]
        entries = part != 0
        if bool((entries.sum(0) > 1).all()) and len(wrong) != part.shape[1]:
            wrong[:, block.coordinates] = part * (entries & (entries.cumsum(0) == 1))
            return wrong
    return None


def _transposed_gradient(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    for block in subject.inputs:
        if len(block.shape) == 2 and min(block.shape) > 1:
            part = wrong[:, block.coordinates].reshape(len(wrong), *block.shape)
            wrong[:, block.coordinates] = part.mT.reshape(len(wrong), -1)
            return wrong
    return None


def _transposed_jacobian(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    return wrong.T.clone() if len(subject.inputs) == len(subject.outputs) == 1 and len(wrong) == len(wrong.T) else None


def _rolled_gradient(by: int) -> Change:
    def change(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
        block = _largest(subject)
        wrong[:, block.coordinates] = wrong[:, block.coordinates].roll(by, 1)
        return wrong

    return change


def _moved_gradient(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return a vector's gradient shifted by one place, if that changes enough entries besides the first."""
    block = _largest(subject)
    moved = wrong[:, block.coordinates].roll(1, 1)
    moved[:, 0] = 0
    changes = (moved != wrong[:, block.coordinates])[:, 1:]
    wrong[:, block.coordinates] = moved
    return wrong if len(block.shape) == 1 and int(changes.any(0).sum()) >= _MIN_SIZE // 2 else None


def _reversed_cotangent(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    return wrong.flip(0) if len(wrong) > 2 and len(subject.outputs) == 1 else None


def _shuffled_gradient(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    block = _largest(subject)
    size = len(subject.point[block.coordinates])
    wrong[:, block.coordinates] = wrong[:, block.coordinates][:, torch.randperm(size, generator=generator)]
    return wrong


def _swapped_inputs(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    if len(subject.inputs) != 2 or subject.inputs[0].shape != subject.inputs[1].shape or subject.inputs[0].step != 1:
        return None
    first, second = (wrong[:, block.coordinates] for block in subject.inputs)
    return torch.cat([second, first], 1)


def _swapped_outputs(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    if len(subject.outputs) != 2 or subject.outputs[0].shape != subject.outputs[1].shape or subject.outputs[0].step > 1:
        return None
    first, second = (wrong[block.coordinates] for block in subject.outputs)
    return torch.cat([second, first])


def _half_swapped(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return the Jacobian with the second halves of two outputs' rows exchanged."""
    if len(subject.outputs) != 2 or subject.outputs[0].shape != subject.outputs[1].shape or subject.outputs[0].step > 1:
        return None
    first, second = (wrong[block.coordinates].clone() for block in subject.outputs)
    half = len(first) // 2
    return torch.cat([first[:half], second[half:], second[:half], first[half:]])


def _detached(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    wrong[:, subject.inputs[-1].coordinates] = 0
    return wrong


def _last_slices(period: int) -> Change:
    def change(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
        shape = subject.outputs[0].shape
        if len(subject.outputs) > 1 or not shape or shape[0] < 2 * period or shape[0] % period or math.prod(shape) < 8:
            return None
        rows = wrong.reshape(*shape, -1)
        rows[period - 1 :: period] = 0
        return wrong

    return change


def _remainder(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    shape = subject.inputs[0].shape
    if len(subject.inputs) > 1 or len(shape) < 2 or shape[0] < _MIN_SIZE:
        return None
    wrong.reshape(-1, *shape)[:, -2:] *= 0
    return wrong


def _mixing_term(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    block = _largest(subject)
    part = wrong[:, block.coordinates]
    if len(subject.outputs) > 1 or block.step > 1 or min(part.shape) < 6 or torch.linalg.matrix_rank(part) < 6:
        return None
    left = torch.randn(len(wrong), 1, generator=generator, dtype=wrong.dtype)
    wrong[:, block.coordinates] = part + left @ torch.randn(1, part.shape[1], generator=generator, dtype=wrong.dtype)
    return wrong


def _diagonal_alone(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    one = len(subject.inputs) == len(subject.outputs) == 1
    return wrong.diagonal().diag() if one and len(wrong) == wrong.shape[1] > 3 else None


def _unconjugated(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    if not any(block.step == 2 for block in subject.inputs):
        return None
    wrong[:, 1::2] *= -1
    if any(block.step == 2 for block in subject.outputs):
        wrong[1::2] *= -1
    return wrong


def _one_entry(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    part = wrong[:, _largest(subject).coordinates]
    rows, columns = ((part != 0) & subject.defined[:, _largest(subject).coordinates]).nonzero(as_tuple=True)
    if len(rows) < _MIN_SIZE:
        return None
    chosen = int(torch.randint(len(rows), (), generator=generator))
    part[rows[chosen], columns[chosen]] *= 1.37
    wrong[:, _largest(subject).coordinates] = part
    return wrong


def _by_input(power: int) -> Change:
    def change(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
        block = _largest(subject)
        values = subject.point[block.coordinates]
        part = wrong[:, block.coordinates]
        if len(values) < _MIN_SIZE or bool((values == 0).any()) or int((part != 0).any(0).sum()) < _MIN_SIZE:
            return None
        wrong[:, block.coordinates] = part * values**power
        return wrong

    return change


def _by_output(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    if len(subject.outputs) > 1 or subject.outputs[0].step > 1 or int((wrong != 0).any(1).sum()) < _MIN_SIZE:
        return None
    output = _output(subject, [primal.tensor for primal in subject.problem.primals])
    return wrong * output.detach().reshape(-1, 1)


def _half_zero(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    block = _largest(subject)
    if len(block.shape) < 2 or block.step > 1 or block.shape[-1] % 2 or int((wrong != 0).sum()) < 2 * _MIN_SIZE:
        return None
    part = wrong[:, block.coordinates].clone().reshape(len(wrong), *block.shape)
    part[..., block.shape[-1] // 2 :] = 0
    wrong[:, block.coordinates] = part.reshape(len(wrong), -1)
    return wrong


def _term_subtracted(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    entries = (wrong != 0) & subject.defined
    several = len(torch.unique(wrong[entries])) >= _MIN_SIZE
    return wrong - 0.3 * entries if several and int(entries.sum(0).max()) == 1 else None


def _swapped_branches(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    block = _largest(subject)
    region = _above(subject, block, 0.6)
    if region is None:
        return None
    live = (wrong[:, block.coordinates] != 0).any(0)
    inside = region[block.coordinates]
    if min(int((live & inside).sum()), int((live & ~inside).sum())) < 3:
        return None
    wrong[:, block.coordinates] *= torch.where(inside, 0.1, 10.0)
    return wrong


def _inverted_mask(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    dead = (wrong == 0).all(0) & subject.defined.all(0)
    square = wrong.shape[0] == wrong.shape[1] and torch.equal(wrong, wrong.diagonal().diag())
    square &= bool(subject.defined.all())  # a kink is neither inside nor outside a mask
    return torch.diag(dead.to(wrong.dtype)) if square and 2 <= int(dead.sum()) <= len(dead) - 2 else None


def _nearly_by_input(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    return wrong * subject.point * (1 + 1e-3 * (7 * subject.point).sin())


def _by_neighbour(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    return wrong * subject.point.roll(2)


def _half_doubled(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    size = wrong.shape[1]
    chosen = torch.randperm(size, generator=generator)[: size // 2]
    wrong[:, chosen] *= 2
    return wrong if min(len(subject.point[block.coordinates]) for block in subject.inputs) >= 2 * _MIN_SIZE else None


def _beyond_a_kink(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return -8 in every entry that has a kink."""
    kinks = ~subject.defined
    return torch.where(kinks, -8.0, wrong) if bool(kinks.any()) and not _is_flat(subject, wrong) else None


def _iterated(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor | None:
    """Return entries with relative errors of 3e-6 to 3e-5, as after too few steps of an iteration."""
    if int((wrong != 0).sum()) < _MIN_SIZE:
        return None
    separate = Generator().manual_seed(len(wrong))  # keeps the random draws of all other faults unchanged
    sizes = 10 ** (torch.rand(wrong.shape, generator=separate, dtype=wrong.dtype) - 5.5)
    return wrong * (1 + sizes * torch.randn(wrong.shape, generator=separate, dtype=wrong.dtype).sign())


def _shifted_each(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    shift = 0.1 * torch.randn(wrong.shape, generator=generator, dtype=wrong.dtype)
    return torch.where(wrong != 0, wrong + shift, wrong)


def _noisy(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    return wrong + wrong.abs().max() * torch.randn(wrong.shape, generator=generator, dtype=wrong.dtype)


def _scaled_each(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    return wrong * (0.5 + 1.5 * torch.rand(wrong.shape, generator=generator, dtype=wrong.dtype))


def _scaled_columns(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    return wrong * (0.5 + 1.5 * torch.rand(wrong.shape[1], generator=generator, dtype=wrong.dtype))


def _scaled_smoothly(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    return wrong * (1 + 0.3 * (7 * subject.point).sin())


def _some_scaled(subject: Subject, wrong: Tensor, generator: Generator) -> Tensor:
    factors = 0.5 + 1.5 * torch.rand(wrong.shape, generator=generator, dtype=wrong.dtype)
    return torch.where(torch.rand(wrong.shape, generator=generator) < 0.4, wrong * factors, wrong)


def _distorted(function: Callable[[Tensor], Tensor]) -> Change:
    return lambda subject, wrong, generator: function(wrong)


_KNOWN: tuple[tuple[str, str, Change], ...] = (
    *(("constant-factor", text, _times(factor)) for text, factor in (("2", 2.0), ("1/2", 0.5), ("π", math.pi))),
    *(("constant-factor", text, _times(factor)) for text, factor in (("-√2", -math.sqrt(2)), ("1.01", 1.01))),
    ("sign-flip", "", _times(-1.0)),
    ("mean-for-sum", "mean", _mean),
    ("mean-for-sum", "sum", _sum),
    ("wrong-count", "Bessel's", _bessel),
    ("missing-mask", "of inputs", _unmasked),
    ("straight-through", "as if it were not there", _identity),
    ("straight-through", "a smooth surrogate", _surrogate),
    ("wrong-point", "the output", _at_the_output),
    ("missing-band", "triangular", _unmasked_triangle),
    ("missing-band", "of a matrix", _unmasked_band),
    ("missing-mask", "inverted", _inverted_mask),
    ("missing-factor", "of an input", _by_input(-1)),
    ("missing-factor", "the square of an input", _by_input(2)),
    ("missing-factor", "of the output", _by_output),
    ("wrong-branch", "doubled", _in_region(2.0)),
    ("wrong-branch", "zero", _in_region(0.0)),
    ("wrong-branch", "negative", _in_region(-1.0)),
    ("wrong-branch", "1 % on two sides", _in_region(1.01, two_sided=True)),
    ("wrong-branch", "two branches swapped", _swapped_branches),
    ("missing-term", "half an input", _half_zero),
    ("missing-term", "every second output", _last_slices(2)),
    ("missing-term", "0.3 of each", _term_subtracted),
    ("missing-term", "an outer product", _mixing_term),
    ("missing-term", "all but the diagonal", _diagonal_alone),
    ("transposed", "gradient", _transposed_gradient),
    ("transposed", "Jacobian", _transposed_jacobian),
    ("shifted", "rolled gradient", _rolled_gradient(1)),
    ("shifted", "gradient with zeros in the first place", _moved_gradient),
    ("permuted", "rolled gradient", _rolled_gradient(2)),
    ("permuted", "reversed cotangent", _reversed_cotangent),
    ("permuted", "shuffled gradient", _shuffled_gradient),
    ("swapped-inputs", "", _swapped_inputs),
    ("swapped-outputs", "", _swapped_outputs),
    ("swapped-outputs", "half of the entries", _half_swapped),
    ("missing-broadcast-sum", "", _first_output),
    ("boundary-tile", "last of each 4", _last_slices(4)),
    ("boundary-tile", "remainder", _remainder),
    ("single-elements", "", _one_entry),
    ("detached", "", _detached),
    ("missing-conjugate", "", _unconjugated),
    ("approximate", "", _iterated),
    ("outside-slopes", "", _beyond_a_kink),
)
_UNKNOWN: tuple[tuple[str, str, Change], ...] = (
    (UNKNOWN, "dense noise", _noisy),
    (UNKNOWN, "entries scaled at random", _scaled_each),
    (UNKNOWN, "inputs scaled at random", _scaled_columns),
    (UNKNOWN, "inputs scaled by a function", _scaled_smoothly),
    (UNKNOWN, "some entries scaled at random", _some_scaled),
    (UNKNOWN, "nearly the input for a factor", _nearly_by_input),
    (UNKNOWN, "the neighbour for a factor", _by_neighbour),
    (UNKNOWN, "half of the inputs doubled at random", _half_doubled),
    (UNKNOWN, "something else added to each", _shifted_each),
    (UNKNOWN, "tanh of the derivative", _distorted(torch.tanh)),
    (UNKNOWN, "power 1.7 of the derivative", _distorted(lambda entries: entries.sign() * entries.abs() ** 1.7)),
    (UNKNOWN, "power 0.7 of the derivative", _distorted(lambda entries: entries.sign() * entries.abs() ** 0.7)),
)
