"""Signatures that one spec describes: of one subject, alike but for their sizes and the precision of real numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gradverify.author.recording.notes import (
    SeenArgument,
    SeenList,
    SeenOther,
    SeenPlain,
    SeenSize,
    SeenTensor,
    SeenValues,
    Signature,
    Subject,
)

REAL = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
_MOST_GROUPS = 8  # of one subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Signatures of one subject with the same dimensions, kinds of dtype and other arguments."""

    subject: Subject
    signatures: tuple[Signature, ...]  # most called first

    @property
    def calls(self) -> int:
        """Calls with one of the signatures."""
        return sum(signature.calls for signature in self.signatures)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Calls that no spec describes."""

    subject: Subject
    calls: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Signatures in groups."""

    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...]


def grouped(signatures: Iterable[Signature]) -> Grouped:
    """Return the groups of each subject, most called first, and the calls that are in none."""
    named: dict[Subject, list[Signature]] = {}
    for signature in signatures:
        named.setdefault(signature.subject, []).append(signature)
    groups: list[Group] = []
    left_out: list[LeftOut] = []
    for subject, own in named.items():
        if subject.reason:
            left_out.append(LeftOut(subject=subject, calls=_calls(own), reason=subject.reason))
            continue
        usable = [signature for signature in own if not _is_empty(signature)]
        if len(usable) < len(own):
            empty = _calls(own) - _calls(usable)
            left_out.append(LeftOut(subject=subject, calls=empty, reason="a tensor without elements has no gradient"))
        made = sorted(_groups(subject, usable), key=lambda group: -group.calls)
        groups += made[:_MOST_GROUPS]
        if rest := made[_MOST_GROUPS:]:
            reason = f"{len(rest)} more combinations of other arguments than the {_MOST_GROUPS} most frequent"
            left_out.append(LeftOut(subject=subject, calls=sum(group.calls for group in rest), reason=reason))
    return Grouped(groups=tuple(groups), left_out=tuple(left_out))


def tensors_of(signature: Signature) -> Mapping[str, SeenTensor]:
    """Return every tensor of a signature by its name, `xs[1]` for one in a list."""
    return dict(_tensors(signature.arguments))


def values_of(group: Group, name: str) -> tuple[SeenValues, ...]:
    """Return what was seen of the values of one tensor."""
    return tuple(values for signature in group.signatures for values in signature.values.get(name, ()))


def is_differentiable(tensor: SeenTensor) -> bool:
    """True for tensors that can have a gradient."""
    return tensor.dtype in REAL or tensor.dtype in COMPLEX


def _tensors(arguments: Mapping[str, SeenArgument]) -> Iterator[tuple[str, SeenTensor]]:
    for name, argument in arguments.items():
        if isinstance(argument, SeenTensor):
            yield name, argument
        elif isinstance(argument, SeenList):
            for number, item in enumerate(argument.items):
                if isinstance(item, SeenTensor):
                    yield f"{name}[{number}]", item


def _groups(subject: Subject, signatures: Iterable[Signature]) -> Iterator[Group]:
    alike: dict[str, list[Signature]] = {}
    for signature in signatures:
        form = repr({name: _form(argument) for name, argument in signature.arguments.items()})
        alike.setdefault(form, []).append(signature)
    for own in alike.values():
        yield Group(subject=subject, signatures=tuple(sorted(own, key=lambda signature: -signature.calls)))


def _form(argument: SeenArgument) -> object:
    """Return what an argument has in common with those of its group."""
    if isinstance(argument, SeenTensor):
        kind = "real" if argument.dtype in REAL else "complex" if argument.dtype in COMPLEX else argument.dtype
        return kind, len(argument.shape), argument.device
    if isinstance(argument, SeenList):
        return tuple(map(_form, argument.items))
    if isinstance(argument, SeenSize):
        return "size", len(argument.size)
    return repr(argument.value) if isinstance(argument, SeenPlain) else argument.kind


def _is_empty(signature: Signature) -> bool:
    return any(0 in tensor.shape for tensor in tensors_of(signature).values())


def _calls(signatures: Iterable[Signature]) -> int:
    return sum(signature.calls for signature in signatures)


def why_no_word(group: Group) -> str:
    """Return why a spec cannot describe an argument, "" if it can describe all of them."""
    for name, argument in group.signatures[0].arguments.items():
        if isinstance(argument, SeenOther):
            return f"`{name}` is a {argument.kind}, which YAML has no word for"
        if isinstance(argument, SeenList) and not all(isinstance(item, SeenTensor) for item in argument.items):
            return f"`{name}` holds tensors and other values, which a spec cannot describe together"
    return ""
