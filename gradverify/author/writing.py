"""Specs of functions that were found: their files and their text. No torch."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gradverify.author.finding.model import Found
from gradverify.author.inferring.model import Inferred
from gradverify.spec.files import spec_file
from gradverify.spec.identity import clean_stem
from gradverify.spec.read import read_spec
from gradverify.spec.write import document_text
from gradverify.spec.write_inputs import target_text

_COMMENT = "written by gradverify init, its inputs inferred by trying"
_IN_DISPATCHER = "torch.ops."


def spec_path(found: Found, folder: Path, taken: Collection[str]) -> Path:
    """Return the file of a function's spec: folders for the parts of its module, and its name.

    Two names that differ in case alone are one file on some systems: the second gets a number.
    """
    name = found.target.name
    if name.startswith(_IN_DISPATCHER):
        name = name.rpartition(".")[2]
    path = folder.joinpath(*_parts(found, folder), f"{name}.yaml")
    number = 2
    while str(path).lower() in taken:
        path = path.with_name(f"{name}-{number}.yaml")
        number += 1
    return path


def draw_key(found: Found, path: Path) -> str:
    """Return what the values of the case in this file depend on."""
    return f"{clean_stem(path.name)}/{found.target.name.rpartition('.')[2]}/sample0"


def spec_of(found: Found, inferred: Inferred, path: Path) -> tuple[str, str]:
    """Return the text of a spec, and the reason why it is a draft, "" if it is none."""
    reason = inferred.reason
    text = document_text(_document(found, inferred, reason, path), comment="" if reason else _COMMENT)
    mistakes = read_spec(text, spec_file(path)).errors
    if not mistakes:
        return text, reason
    reason = f"the inputs that were inferred are no spec: {mistakes[0].path}: {mistakes[0].problem}"
    return document_text(_document(found, Inferred(inputs={}), reason, path)), reason


def _parts(found: Found, folder: Path) -> tuple[str, ...]:
    """Return the folders of a spec, below the folder of all specs."""
    if found.module.name is not None:
        return tuple(found.module.name.split("."))
    path = Path(found.module.path).with_suffix("")
    for above in (folder.resolve(), Path.cwd()):
        if path.is_relative_to(above):
            return path.relative_to(above).parts
    return path.parts[-1:]


def _document(found: Found, inferred: Inferred, reason: str, path: Path) -> Mapping[str, Any]:
    keys = {
        "function": target_text(found.target, Path(os.path.abspath(path.parent))),  # noqa: PTH100 (links are kept)
        "draft": reason or None,
        "dims": dict(inferred.dims) or None,
        "inputs": dict(inferred.inputs),
        "dtypes": None if inferred.dtype == "float64" else [inferred.dtype],
        "interpret": inferred.interpreted or None,
    }
    return {key: value for key, value in keys.items() if value is not None}
