"""The module that a spec names an operator by, among those that lead to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.author.recording.notes import Notes, Place, SeenPlain, Signature, Subject
from gradverify.author.recording.reached import file_name, with_operators_named

OPERATOR = Subject(module="torch.ops", name="torch.ops.space.op", reason="no module leads to it")
MENTIONING = "import torch\n\n\ndef op(x):\n    return torch.ops.space.op(x)\n"


def named(folder: Path, *places: tuple[str, str, str, bool]) -> Subject:
    """Return the subject of an operator for modules, attributes, texts, and whether the module defines it."""
    found = []
    for module, attribute, text, defines in places:
        file = folder.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        found.append(Place(module=module, file=str(file), name=attribute or OPERATOR.name, defines=defines))
    noted = Signature(subject=OPERATOR, arguments={"x": SeenPlain(value=1)}, calls=2)
    notes = Notes(signatures=(noted,), uncounted={OPERATOR: 3}, failures=(), places={OPERATOR: tuple(found)})
    renamed = with_operators_named(notes)
    (signature,) = renamed.signatures
    assert renamed.uncounted == {signature.subject: 3}
    return signature.subject


def home(folder: Path, *places: tuple[str, str, str, bool]) -> str:
    subject = named(folder, *places)
    return f"{subject.module}:{subject.name}"


def test_without_a_module_it_stays_without_a_name(tmp_path: Path) -> None:
    assert named(tmp_path) == OPERATOR


def test_a_module_that_imports_torch_alone_does_not_lead_to_it(tmp_path: Path) -> None:
    assert named(tmp_path, ("other", "", "import torch\n", False)) == OPERATOR


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (("a", "", MENTIONING, False), ("b", "", "import torch\n", True)),
        (("a", "", "import torch\n", True), ("b", "op", "from c import op\n", False)),
        (("a", "op", "from c import op\n", False), ("b", "op", MENTIONING, False)),
        (("a", "op", MENTIONING, False), ("b", "op", MENTIONING, True)),
        (("test_a", "op", MENTIONING, True), ("b", "", MENTIONING, False)),
        (("a.tests.c", "op", MENTIONING, True), ("b", "", MENTIONING, False)),
        (("a", "", MENTIONING, False), ("space.z", "", MENTIONING, False)),
        (("p.a.c", "", MENTIONING, False), ("p.b", "", MENTIONING, False)),
    ],
)
def test_the_better_of_two_modules(tmp_path: Path, worse: tuple[str, str, str, bool], better: object) -> None:
    assert isinstance(better, tuple)
    expected = f"{better[0]}:{better[1] or OPERATOR.name}"
    assert home(tmp_path, worse, better) == home(tmp_path, better, worse) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("torch.ops.space.op", "op"), ("torch.ops.space.op.row", "op.row"), ("Outer.Inner", "Outer.Inner")],
)
def test_file_name(name: str, expected: str) -> None:
    assert file_name(Subject(module="a", name=name)) == expected
