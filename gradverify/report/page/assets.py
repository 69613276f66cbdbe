"""The files that a page is put together from, and the policy that lets a browser run these and nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_STYLES = ("colours", "layout", "cases", "pictures", "print")
_NOTEBOOK = ("case", "exploration", "parts")
_SCRIPTS = (
    "dom",
    "theme",
    "explain",
    "tables",
    "panels",
    "pointing",
    "explored",
    "details",
    "filter",
    "start",
)  # in this order


@cache
def template() -> str:
    """Return the page's template."""
    return _text("page.html.jinja")


@cache
def notebook() -> Mapping[str, str]:
    """Return the templates for a notebook by name: of a case, of an exploration, and of what both write."""
    return MappingProxyType({name: _text(f"notebook/{name}.html.jinja") for name in _NOTEBOOK})


@cache
def style() -> str:
    """Return the style sheet."""
    return "\n".join(_text(f"style/{name}.css") for name in _STYLES)


@cache
def script() -> str:
    """Return the script: its parts share one scope and leave no name in the page."""
    parts = "\n".join(_text(f"script/{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def policy() -> str:
    """Return a Content-Security-Policy: no connection of any kind, and no style or script but those of the page."""
    rules = [
        "default-src 'none'",
        f"style-src '{_hash(style())}'",
        f"script-src '{_hash(script())}'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return "; ".join(rules)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _text(name: str) -> str:
    return files("gradverify.report.page").joinpath(name).read_text(encoding="utf-8")
