"""How a finding's numbers are called, and which tensors its elements lie in."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.report.safe import safe
from gradverify.result import Against, Element, Finding, Index

_NAMES = {
    Against.DIFFERENCES: ("analytic", "numeric"),
    Against.REFERENCE: ("kernel", "reference"),
    Against.CPU: ("device", "CPU"),
}
Axes = Callable[[Element], tuple[Index, Index]]  # indices of an element on the rows and on the columns of a picture


def compared_names(finding: Finding) -> tuple[str, str]:
    """Return what `analytic` and `numeric` are called in tables and pictures."""
    return _NAMES[finding.against]


def is_jacobian(finding: Finding) -> bool:
    """Return True if the elements are entries of a Jacobian, False if they are entries of one tensor."""
    return finding.against is Against.DIFFERENCES or (finding.of is not None and finding.wrt is not None)


def axis_names(finding: Finding) -> tuple[str, str]:
    """Return the names in front of the indices of rows and columns."""
    if is_jacobian(finding):
        return safe(finding.of or "output"), safe(finding.wrt or "input")
    return safe(finding.of or finding.wrt or "tensor"), ""


def axes_of(finding: Finding) -> Axes:
    """Return the axes of a finding's picture: outputs and inputs, or a tensor's last dimension and all others."""
    return jacobian_axes if is_jacobian(finding) else _last_dimension_apart


def jacobian_axes(element: Element) -> tuple[Index, Index]:
    """Return the indices of an entry of a Jacobian: of the output, and of the input."""
    return element.output_index, element.input_index


def _last_dimension_apart(element: Element) -> tuple[Index, Index]:
    index = element.output_index or element.input_index
    return index[:-1], index[-1:]
