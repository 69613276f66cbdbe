"""Elementary functions that the factors of a derivative are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A function of one number, in words too."""

    text: str  # with {0} for the number, {1} where a sum or difference has to stand in brackets
    function: Callable[[Tensor], Tensor]


# Simplest first. None is the reciprocal of another: both are tried of each.
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
    """Return the function of what is called so."""
    return form.text.format(name, f"({name})" if " " in name else name)


def bare(text: str) -> str:
    """Return the words without brackets around all of them."""
    inside = text[1:-1]
    return inside if text.startswith("(") and text.endswith(")") and "(" not in inside else text
