"""Elementary functions that occur as factors of a derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An elementwise function and its text."""

    text: str  # {0} stands for the argument, {1} for the argument in brackets if it contains a space
    function: Callable[[Tensor], Tensor]


# Simplest first. Reciprocals are not listed, since callers try each function and its reciprocal.
FORMS: tuple[Form, ...] = (
    Form(text="{1}", function=lambda t: t),
    Form(text="{1}²", function=torch.square),
    Form(text="(1 - {1})", function=lambda t: 1 - t),
    Form(text="(1 - {1}²)", function=lambda t: 1 - t * t),
    Form(text="(1 + {1})", function=lambda t: 1 + t),
    Form(text="(1 + {1}²)", function=lambda t: 1 + t * t),
    Form(text="{1} (1 - {1})", function=lambda t: t * (1 - t)),
    Form(text="√{1}", function=torch.sqrt),
    Form(text="exp({0})", function=torch.exp),
    Form(text="log({0})", function=torch.log),
    Form(text="{1}³", function=lambda t: t**3),
)
OF_DIFFERENCES = tuple(form for form in FORMS if form.text in ("{1}", "exp({0})", "(1 + {1})"))


def written(form: Form, name: str) -> str:
    """Return the text of the function of an argument with this name."""
    return form.text.format(name, f"({name})" if " " in name else name)


def bare(text: str) -> str:
    """Return the text without the brackets that enclose all of it."""
    inside = text[1:-1]
    return inside if text.startswith("(") and text.endswith(")") and "(" not in inside else text
