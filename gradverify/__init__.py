"""gradverify: is this backward the derivative of this forward, and if not, which element is wrong, and why?

The public names below are loaded on first use, so that `import gradverify` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradverify.api.explore import explore
    from gradverify.api.verify import GradientMismatch, assert_gradients, assert_matches, verify
    from gradverify.author.recording.session import record
    from gradverify.errors import EvaluationError, GradverifyError, SpecError, TargetError
    from gradverify.result import (
        CaseResult,
        CheckResult,
        Element,
        ElementVerdict,
        Exploration,
        Finding,
        Report,
        Verdict,
    )

__version__ = "0.1.0"

_HOME = {
    "verify": "gradverify.api.verify",
    "assert_gradients": "gradverify.api.verify",
    "assert_matches": "gradverify.api.verify",
    "GradientMismatch": "gradverify.api.verify",
    "explore": "gradverify.api.explore",
    "record": "gradverify.author.recording.session",
    "GradverifyError": "gradverify.errors",
    "SpecError": "gradverify.errors",
    "TargetError": "gradverify.errors",
    "EvaluationError": "gradverify.errors",
    "CaseResult": "gradverify.result",
    "CheckResult": "gradverify.result",
    "Element": "gradverify.result",
    "ElementVerdict": "gradverify.result",
    "Exploration": "gradverify.result",
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
    "Exploration",
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
    "explore",
    "record",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gradverify' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
