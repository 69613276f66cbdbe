"""`gradverify explain`: every code has a section, and explaining imports no torch."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradverify.catalogue import parse, section_of, sections
from gradverify.cli.explain import explain
from gradverify.problem import DEFECT

PACKAGE = Path(__file__).parent.parent.parent / "gradverify"
SERIES = {f"GV{series + number}" for series in (100, 200) for number in range(5)}  # composed of series and code


def emitted() -> set[str]:
    text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return set(re.findall(r"GV\d{3}", text)) | SERIES


def test_every_code_that_can_be_printed_has_one_section() -> None:
    names = [section.name for section in sections()]
    assert emitted() <= set(names)
    assert len(set(names)) == len(names)
    assert {name for name in names if name.startswith("GV")} <= emitted()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_small_encodings_can_show_all_of_it(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    explain()
    for section in sections():
        explain(section.name)
    text = raw.getvalue().decode(encoding)
    assert "GV101 - entries of the gradient differ\n" in text
    assert not re.findall(r"\\[ux][0-9a-f]{2,}", text)


@pytest.mark.parametrize(
    "section", [s for s in sections() if s.name.startswith("GV")], ids=lambda section: section.name
)
def test_a_section_says_why_and_shows_both_sides(section) -> None:
    assert section.title
    assert "Why it matters: " in section.text
    sides = re.findall(r"^(Wrong|Mended)\b.*:$", section.text, re.MULTILINE)
    no_code = "Accepted: " in section.text or section.name == DEFECT  # nothing to mend in the user's code
    assert no_code or sides[:2] == ["Wrong", "Mended"]


def test_explain_a_code(call) -> None:
    result = call("explain", "gv307")
    assert result.exit_code == 0
    assert result.stdout.startswith("GV307 — wrong for a cotangent in another memory layout\n\nThe values are the same")
    assert result.stdout.endswith("return g.reshape(-1)[index]\n")
    assert "GV308" not in result.stdout


def test_explain_lists_everything(call) -> None:
    result = call("explain")
    assert result.exit_code == 0
    assert "  GV100  " in re.sub(" +", "  ", result.stdout)
    assert all(section.name in result.stdout for section in sections())


def test_explain_something_unknown(call) -> None:
    result = call("explain", "GV37")
    assert result.exit_code == 2
    assert result.stderr.startswith("gradverify: no code or cause 'GV37': did you mean GV307")
    result = call("explain", "nonsense")
    assert result.exit_code == 2
    assert result.stderr == "gradverify: no code or cause 'nonsense': `gradverify explain` lists what there is\n"


def test_parsing() -> None:
    fenced = "text\n\n```\n# a comment\n## GV002 — none\n```"
    page = f"intro\n# One\n## GV001 — first — of two\n{fenced}\n# Causes\n## odd-sign — it\nx\n"
    first, second = parse(page)
    assert (first.name, first.title, first.group) == ("GV001", "first — of two", "One")
    assert first.text == fenced
    assert (second.name, second.group, second.text) == ("odd-sign", "Causes", "x")
    assert section_of("ODD-SIGN", (first, second)) is second
    assert section_of("odd", (first, second)) is None


def test_explain_needs_no_torch() -> None:
    program = "import sys; from gradverify.cli.explain import explain; explain('GV307'); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("False\n")


def test_lists_and_titles_are_wrapped_where_the_screen_is_narrow(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for words in (["explain"], ["explain", "GV104"]):
        text = call(*words).stdout
        assert all(len(row) <= 60 for row in text.splitlines() if not row.startswith("    "))
    assert "\n- The forward jumps at the point, is not finite around it,\n  is random" in text
