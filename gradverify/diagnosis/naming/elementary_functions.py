"""Elementary functions that occur as factors of a derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementaryFunction:
    """An elementwise function and its text."""

    text: str  # {0} stands for the argument, {1} for the argument in brackets if it contains a space
    function: Callable[[Tensor], Tensor]


# Simplest first. Reciprocals are not listed, since callers try each function and its reciprocal.
ELEMENTARY_FUNCTIONS: tuple[ElementaryFunction, ...] = (
    ElementaryFunction(text="{1}", function=lambda t: t),
    ElementaryFunction(text="{1}²", function=torch.square),
    ElementaryFunction(text="(1 - {1})", function=lambda t: 1 - t),
    ElementaryFunction(text="(1 - {1}²)", function=lambda t: 1 - t * t),
    ElementaryFunction(text="(1 + {1})", function=lambda t: 1 + t),
    ElementaryFunction(text="(1 + {1}²)", function=lambda t: 1 + t * t),
    ElementaryFunction(text="{1} (1 - {1})", function=lambda t: t * (1 - t)),
    ElementaryFunction(text="√{1}", function=torch.sqrt),
    ElementaryFunction(text="exp({0})", function=torch.exp),
    ElementaryFunction(text="log({0})", function=torch.log),
    ElementaryFunction(text="{1}³", function=lambda t: t**3),
)
OF_DIFFERENCES = tuple(form for form in ELEMENTARY_FUNCTIONS if form.text in ("{1}", "exp({0})", "(1 + {1})"))


def function_text(form: ElementaryFunction, name: str) -> str:
    """Return the text of the function of an argument with this name."""
    return form.text.format(name, f"({name})" if " " in name else name)


def without_brackets(text: str) -> str:
    """Return the text without the brackets that enclose all of it."""
    inside = text[1:-1]
    return inside if text.startswith("(") and text.endswith(")") and "(" not in inside else text
