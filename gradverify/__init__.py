"""gradverify: is this backward the derivative of this forward, and if not, which element is wrong, and why?

The public names below are loaded on first use, so that `import gradverify` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradverify.api import GradientMismatch, assert_gradients, assert_matches, verify
    from gradverify.errors import EvaluationError, GradverifyError, SpecError, TargetError
    from gradverify.result import CaseResult, CheckResult, Element, ElementVerdict, Finding, Report, Verdict

__version__ = "0.1.0"

_HOME = {
    "verify": "gradverify.api",
    "assert_gradients": "gradverify.api",
    "assert_matches": "gradverify.api",
    "GradientMismatch": "gradverify.api",
    "GradverifyError": "gradverify.errors",
    "SpecError": "gradverify.errors",
    "TargetError": "gradverify.errors",
    "EvaluationError": "gradverify.errors",
    "CaseResult": "gradverify.result",
    "CheckResult": "gradverify.result",
    "Element": "gradverify.result",
    "ElementVerdict": "gradverify.result",
    "Finding": "gradverify.result",
    "Report": "gradverify.result",
    "Verdict": "gradverify.result",
}

__all__ = [
    "CaseResult",
    "CheckResult",
    "Element",
    "ElementVerdict",
    "EvaluationError",
    "Finding",
    "GradientMismatch",
    "GradverifyError",
    "Report",
    "SpecError",
    "TargetError",
    "Verdict",
    "__version__",
    "assert_gradients",
    "assert_matches",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gradverify' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
