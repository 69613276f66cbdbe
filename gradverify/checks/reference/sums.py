"""Random sums over the outputs of a function: a few rows that stand for a Jacobian too large to be computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.checks.reference.cotangents import cotangents_for
from gradverify.core.model.problem import Meter, Problem, call
from gradverify.nested import Named

_SLICES = 64  # of an output along a dimension, for a sum over each


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """A few sums over all outputs, each with other weights."""

    name: str
    shape: tuple[int, ...]  # in which the sums are laid out
    weights: Sequence[Sequence[Tensor]]  # per sum and output, a cotangent
    dimension: int | None = None  # along which each is over one slice of the output; None for sums over all entries
    note: str  # what to say behind a cause that was found in them


def random_sums(outputs: Sequence[Named], seed: int) -> Iterator[Sums]:
    """Yield sums over all entries, and sums over the slices of a single output along each short dimension."""
    given = cotangents_for([output.tensor for output in outputs], seed)
    weights, note = [each.tensors for each in given], f"seen in {len(given)} random sums over all outputs"
    name = outputs[0].name if len(outputs) == 1 else "outputs"
    yield Sums(name=name, shape=(len(given),), weights=weights, note=note)
    if len(outputs) > 1:
        return
    (weight,), shape = weights[0], outputs[0].tensor.shape
    for dimension, size in enumerate(shape):
        if 1 < size <= _SLICES:
            slices = torch.eye(size, dtype=weight.real.dtype, device=weight.device)
            parts = [(weight * each.reshape(-1, *(1,) * (len(shape) - dimension - 1)),) for each in slices]
            kept = tuple(size if number == dimension else 1 for number in range(len(shape)))
            yield Sums(
                name=name,
                shape=kept,
                weights=parts,
                dimension=dimension,
                note=f"seen in random sums of {name} over all dimensions but {dimension}",
            )


def in_sums(problem: Problem, connected: Sequence[int], sums: Sums) -> Problem:
    """Return the problem whose only output are the sums."""
    plain = tuple(replace(primal, like=None, project=None) for primal in problem.primals)
    inner = replace(problem, primals=plain, meter=Meter())

    def function(*tensors: Tensor) -> Tensor:
        outputs = call(inner, tensors)
        chosen = [outputs[number].tensor for number in connected]
        return torch.stack([torch.stack(list(map(_product, chosen, each))).sum() for each in sums.weights]).reshape(
            sums.shape
        )

    return replace(problem, function=function, finer=None, outputs=None, output=sums.name)


def _product(output: Tensor, weight: Tensor) -> Tensor:
    """Return the sum over all real coordinates of output times weight, in float64."""
    real = [torch.view_as_real(each) if each.is_complex() else each for each in (output, weight.to(output.dtype))]
    return (real[0].double() * real[1].double()).sum()
