"""Every kind of mistake and the exact lines that name it: tables in `mistakes/`, one block for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec.support import FUNCTION, TENSOR, Folder

TABLES = Path(__file__).parent / "mistakes"

# What each table leaves out before its specs.
ABOVE = {
    "documents": "",
    "targets": "",
    "cases": TENSOR,
    "keys": TENSOR,
    "inputs": FUNCTION + "inputs:\n  x: ",
    "dims": FUNCTION,
    "explore": FUNCTION
    + "dims: {n: 4, m: 6}\ninputs: {x: {shape: [n, m], uniform: [-3, 3]}, ids: {shape: [m], integers: [0, 4]}, "
    + "p: 0.1, mode: none,\n  pad: [-1, 1], dt: {dtype: float32}}\n",
}

MULTIPLE = """\
function: ops/rellu.py:F
inputs:
  x: {shpe: [5], uniform: [3, -3]}
  clip_val: {shape: [2], dtype: int64}
checks: [gradchek]
devces: [cpu]
"""

IN_BYTES = [
    (b"", "1:1: there is nothing in it (a spec has at least `function` and `inputs`)"),
    (b"\xef\xbb\xbf- 1", "1:1: expected a mapping, found a list"),
    (b"a: \xff\n", "1:4: not UTF-8: byte 0xff (save the file as UTF-8)"),
    (b"a: 1\nb: \xc3\xa9\xe9\n", "2:5: not UTF-8: byte 0xe9 (save the file as UTF-8)"),
    (b"\xff\xfea\x00", "1:1: not UTF-8 but UTF-16 or UTF-32 (save the file as UTF-8)"),
    (b"a: 1\r\nb: \xc3\xa9\x00\n", "2:5: the control character U+0000 is not allowed (remove it)"),
    (b"a: \x1b[31m\n", "1:4: the control character U+001B is not allowed (remove it)"),
    (b"[" * 60, "1:51: nested more than 50 levels deep"),
]


def blocks() -> Iterator[pytest.param]:
    for table, above in ABOVE.items():
        for block in (TABLES / f"{table}.txt").read_text(encoding="utf-8").split("----\n"):
            text, expected = block.split("=>\n")
            yield pytest.param(above + text, expected, id=f"{table}-{text.splitlines()[0]}")


@pytest.mark.parametrize(("text", "expected"), list(blocks()))
def test_mistake(folder: Folder, text: str, expected: str) -> None:
    assert "\n".join(folder.errors(text)) + "\n" == expected


@pytest.mark.parametrize(("data", "expected"), IN_BYTES)
def test_mistake_in_bytes(folder: Folder, data: bytes, expected: str) -> None:
    assert folder.errors(data) == [expected]


def test_six_mistakes_are_six_lines(folder: Folder) -> None:
    assert folder.errors(MULTIPLE) == [
        "1:11: function: no such file `ops/rellu.py` (did you mean `ops/relu.py`?)",
        "3:7: inputs.x.shpe: unknown key (did you mean `shape`?)",
        "3:27: inputs.x.uniform: low must be less than high, found [3, -3]",
        "4:33: inputs.clip_val.dtype: `normal` draws no int64 (use `integers` or `bernoulli`)",
        "5:10: checks[0]: `gradchek` is not known (did you mean `gradcheck`?)",
        "6:1: devces: unknown key (did you mean `devices`?)",
    ]


def test_mistakes_of_every_document_and_every_case_are_said_once(folder: Folder) -> None:
    text = TENSOR + "sed: 1\ncases: {a: {}, b: {seed: -1}}\n---\n" + TENSOR + "samples: 0\n"
    assert folder.errors(text) == [
        "3:1: sed: unknown key (did you mean `seed`?)",
        "4:26: cases.b.seed: expected a whole number from 0 to 9223372036854775807, found -1",
        "8:10: samples: expected a whole number from 1 to 100000, found 0",
    ]


def test_messages_cannot_steer_the_terminal(folder: Folder) -> None:
    text = TENSOR + '"\\e[2J": "\\a"\nseed: "\\e]0;title\\a"\nfunction2: "\\u202E"\n'
    assert all(line.isprintable() for line in folder.errors(text))
    assert len(folder.errors(text)) == 3
