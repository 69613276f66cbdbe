"""The page in a real browser: to be filtered, pointed at and read by keyboard; nothing in it runs or calls home."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from report_specimens import case, crashed, element, everything, failing_check, finding, masked, report, skipped
from test_page import hostile

from gradverify.result import Report, Verdict
from tests.browser.chromium import Tab
from tests.report.explored_on_page import explored_case
from tests.report.test_page_explored import hostile_exploration

pytestmark = pytest.mark.slow

Show = Callable[..., Tab]

IDS = "document.querySelectorAll('.id')"
SHOWN = f"[...{IDS}].filter((one) => one.checkVisibility()).map((one) => one.textContent)"
OPENED = f"[...{IDS}].filter((one) => one.closest('details').open).map((one) => one.textContent)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 28)"


@pytest.fixture(autouse=True)
def quiet(tab: Tab) -> Iterator[None]:
    """No test leaves a complaint on the console, nor a request but that for the page itself."""
    yield
    assert tab.complaints() == []
    assert [address for address in tab.requests() if not address.endswith("page.html")] == []


def mixed() -> Report:
    return report(
        masked(),
        case("relu/cuda/cuda-float32", device="cuda", dtype="float32"),
        crashed(),
        skipped(),
        case("gelu/one/cpu-float64"),
    )


def opened(tab: Tab, number: int = 0) -> None:
    tab.run(f"document.querySelector('#case-{number} details').open = true")
    tab.wait(f"document.querySelector('#case-{number} .body').firstChild")


def test_the_filter(show: Show) -> None:
    tab = show(mixed())
    assert tab.run(SHOWN) == [masked().id, crashed().id]
    tab.run("document.querySelector('input[value=pass]').click()")
    assert tab.run(SHOWN) == ["relu/cuda/cuda-float32", "gelu/one/cpu-float64"]
    assert tab.run("document.getElementById('count').textContent") == "2 of 5 cases"
    assert tab.run("location.hash") == "#verdict=pass"
    tab.run(
        "(() => { const box = document.getElementById('device'); box.value = 'cuda';"
        "box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert tab.run(SHOWN) == ["relu/cuda/cuda-float32"]
    assert tab.run("location.hash") == "#verdict=pass&device=cuda"
    tab.click(*tab.middle("button[type=reset]"))
    tab.wait("location.hash === ''")
    assert tab.run(SHOWN) == [masked().id, crashed().id]  # folded as before


def test_the_filter_from_the_keyboard(show: Show) -> None:
    tab = show(mixed())
    tab.press("/", "/")
    tab.type("MISSING-mask gv101")
    assert tab.run(SHOWN) == [masked().id]
    assert tab.run("document.getElementById('q').value") == "MISSING-mask gv101"
    assert tab.run("new URLSearchParams(location.hash.slice(1)).get('q')") == "missing-mask gv101"
    tab.press("Tab")
    tab.press(" ", " ")
    assert tab.run("location.hash").startswith("#verdict=fail&")


def test_the_state_in_the_address(show: Show) -> None:
    tab = show(mixed(), "#verdict=skip,pass&dtype=float64&case=gelu%2Fone%2Fcpu-float64")
    assert tab.run(SHOWN) == [skipped().id, "gelu/one/cpu-float64"]
    assert tab.run(OPENED) == ["gelu/one/cpu-float64"]
    tab.run("location.hash = 'q=relu%2Fcuda'")
    tab.wait("document.getElementById('q').value === 'relu/cuda'")
    assert tab.run(SHOWN) == ["relu/cuda/cuda-float32"]


def test_a_state_that_means_nothing(show: Show) -> None:
    tab = show(mixed(), "#verdict=%3Cimg%3E&device=none&case=%27%22&%%%=1&__proto__=x")
    assert len(tab.run(SHOWN)) == 2


def test_details_are_drawn_when_a_case_is_opened(show: Show) -> None:
    tab = show(mixed())
    assert tab.run("document.querySelectorAll('.body *').length") == 0
    tab.click(*tab.middle("#case-0 summary"))
    tab.wait("document.querySelector('#case-0 table')")
    assert tab.run("document.querySelectorAll('#case-0 tbody tr').length") == 2
    assert tab.run(
        "[...document.querySelectorAll('#case-0 tbody tr:first-child td')].map((cell) => cell.textContent.trim())"
    ) == [*("y[1]", "x[1]", "3.512345679", "1", "0 ± 2e-11", "1", "3.1e-10", "3.3e9")]
    assert tab.run("new URLSearchParams(location.hash.slice(1)).get('case')") == masked().id


def test_arrows_go_from_case_to_case(show: Show) -> None:
    tab = show(mixed())
    tab.run("document.querySelector('#case-0 summary').focus()")
    tab.press("ArrowDown")
    assert tab.run("document.activeElement.closest('.case').id") == "case-2"
    tab.press("Enter", "\r")
    tab.wait("document.querySelector('#case-2 details').open")


def test_pointing_shows_index_and_values(show: Show) -> None:
    tab = show(mixed())
    opened(tab)
    tab.point(*tab.middle("#case-0 .drawing.numeric .cell[data-cell='1']"))
    tip = "document.querySelector('#case-0 .tip')"
    assert tab.run(f"{tip}.innerText.split('\\n')") == [
        "d y[4] / d x[4]",
        "analytic 1",
        "numeric 0.2500000000 ± 2e-11",
        "difference 0.75, allowed 3.1e-10 (ratio 2.5e9)",
        "input value 6.512345679",
    ]
    assert tab.run("document.querySelector('#case-0 tr.marked td').textContent") == "y[4]"
    assert (
        tab.run("[...document.querySelectorAll('#case-0 .cursor')].map((one) => one.getAttribute('visibility'))")
        == ["visible"] * 3
    )
    x, y = tab.middle("#case-0 .drawing.error .ground")
    tab.point(x, y)
    assert "not among the elements listed" in tab.run(f"{tip}.innerText")
    tab.point(1, 1)
    assert tab.run(f"{tip}.hidden")


def test_the_keyboard_shows_index_and_values(show: Show) -> None:
    tab = show(mixed())
    opened(tab)
    readout = "document.querySelector('#case-0 .readout').textContent"
    tab.run("document.querySelector('#case-0 .frame').focus()")
    tab.press("Tab")
    assert tab.run("document.activeElement.classList.contains('analytic')")
    assert tab.run(readout).startswith("d y[1] / d x[1] · analytic 1 · numeric 0 ± 2e-11")
    tab.press("ArrowDown")
    assert tab.run(readout).startswith("d y[4] / d x[4]")
    tab.press("ArrowLeft")
    assert tab.run(readout).startswith("d y[1] / d x[1]")
    tab.press("Escape")
    assert tab.run("document.querySelector('#case-0 .tip').hidden")


def test_colours_follow_the_sign_and_the_size(show: Show) -> None:
    elements = (
        element(0, analytic=2.0, numeric=-2.0, error=4.0),
        element(1, analytic=math.nan, numeric=0.0, error=math.nan),
    )
    tab = show(report(case(as_expected=False, checks=(failing_check(findings=(finding(elements=elements),)),))))
    opened(tab)
    found = "[...document.querySelectorAll('.drawing.{} .cell')].map((one) => getComputedStyle(one).fill)"
    colours = [tab.run(found.replace("{}", kind)) for kind in ("analytic", "numeric", "error")]
    assert len({colours[0][0], colours[1][0], colours[2][0], colours[0][1], colours[1][1]}) == 5
    assert colours[0][1] == colours[2][1] == "rgb(0, 0, 0)"


def test_the_theme(show: Show) -> None:
    tab = show(mixed())
    tab.prefer("light")
    assert tab.run(BACKGROUND) == LIGHT
    tab.prefer("dark")
    assert tab.run(BACKGROUND) == DARK
    tab.click(*tab.middle("#theme"))
    assert tab.run(BACKGROUND) == LIGHT
    # Remembered: but the browser may write down what a page stores only after another process has opened the next one.
    assert any(show(mixed()).run(BACKGROUND) == LIGHT for _ in range(5))
    tab.click(*tab.middle("#theme"))
    assert tab.run(BACKGROUND) == DARK
    tab.prefer("light")  # the same as the system is no choice of its own
    assert tab.run(BACKGROUND) == LIGHT


def test_hostile_text_does_not_run(show: Show) -> None:
    tab = show(hostile())
    tab.run("window.ran = 0; window.hit = () => { window.ran += 1; }")
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    tab.wait("document.querySelector('#case-0 .cell')")
    tab.point(*tab.middle("#case-0 .cell"))
    assert tab.run("window.ran") == 0
    assert tab.run("document.querySelectorAll('img, iframe, .case svg[onload]').length") == 0
    assert tab.run("document.scripts.length") == 3
    assert "<img src=x onerror='hit()'>" in tab.run("document.querySelector('#case-0 .id').textContent")
    assert "</script><script>hit()</script>" in tab.run("document.querySelector('#case-0 .body').textContent")


def test_every_chip_of_a_case_names_its_check(show: Show) -> None:
    tab = show(mixed())
    opened(tab)
    chips = "[...document.querySelectorAll('#case-0 .marks .cause, #case-0 .check .badge, #case-0 .check .code, "
    chips += "#case-0 .check .cause')].map((chip) => chip.textContent)"
    assert tab.run(chips) == [
        "gradcheck: missing-mask",
        "✗ gradcheck: fail",
        "gradcheck GV101",
        "gradcheck: missing-mask",
        "✓ gradgradcheck: pass",
        "✓ contract: pass",
    ]


def test_codes_and_causes_open_their_explanation(show: Show) -> None:
    tab = show(mixed())
    opened(tab)
    tab.click(*tab.middle("#case-0 button.cause"))
    assert tab.run("document.querySelector('dialog').open")
    assert "Why it matters" in tab.run("document.querySelector('dialog').innerText")
    tab.press("Escape")
    tab.wait("!document.querySelector('dialog').open")


def test_the_command_is_copied(show: Show) -> None:
    tab = show(mixed())
    opened(tab)
    tab.ask("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    tab.click(*tab.middle("#case-0 .reproduce button"))
    tab.wait("document.querySelector('#case-0 .reproduce button').textContent !== 'Copy'")
    said = tab.run("document.querySelector('#case-0 .reproduce button').textContent")
    selected = tab.run("getSelection().toString()")
    command = "gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64'"
    assert said == "Copied" or selected == command


def test_failures_at_other_inputs_are_drawn_like_other_findings(show: Show) -> None:
    tab = show(report(explored_case()))
    opened(tab)
    failure = "document.querySelector('#case-0 .failure')"
    assert tab.run(f"{failure}.querySelector('h4').textContent").startswith("found at try 9 of 1,200: stride: 1")
    assert tab.run(f"{failure}.querySelector('pre').textContent") == "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 1"
    assert tab.run(f"{failure}.querySelectorAll('tbody tr').length") == 2
    assert tab.run(f"{failure}.querySelectorAll('.drawing').length") == 3
    assert tab.run("document.querySelectorAll('#case-0 .short li').length") == 3
    tab.point(*tab.middle("#case-0 .failure .drawing.numeric .cell[data-cell='1']"))
    assert tab.run(f"{failure}.querySelector('tr.marked td').textContent") == "y[4]"
    tab.click(*tab.middle("#case-0 .failure button.cause"))
    assert tab.run("document.querySelector('dialog').open")


def test_hostile_inputs_of_a_failure_do_not_run(show: Show) -> None:
    tab = show(report(explored_case(explored=hostile_exploration())))
    tab.run("window.ran = 0; window.hit = () => { window.ran += 1; }")
    opened(tab)
    assert tab.run("window.ran") == 0
    assert tab.run("document.querySelectorAll('img, iframe, .case svg[onload]').length") == 0
    assert "<img src=x onerror='hit()'>" in tab.run("document.querySelector('#case-0 .failure pre').textContent")


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
def test_no_width_is_too_narrow(show: Show, width: int) -> None:
    tab = show(report(*everything().cases, explored_case()))
    tab.resize(width)
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    tab.wait("document.querySelectorAll('.body:empty').length === 0")
    assert tab.run("document.documentElement.scrollWidth") <= width


def test_paper_shows_what_is_not_as_expected(show: Show) -> None:
    tab = show(mixed())
    tab.run("dispatchEvent(new Event('beforeprint'))")
    tab.ask("Emulation.setEmulatedMedia", media="print")
    assert tab.run(OPENED) == [masked().id, crashed().id]
    assert not tab.run("document.getElementById('filter').checkVisibility()")
    assert len(tab.ask("Page.printToPDF")["data"]) > 10_000


def test_two_thousand_cases(show: Show) -> None:
    bad = masked()
    cases: list[Any] = [case(f"suite/{n}/cpu-float64") for n in range(1900)]
    cases += [replace(bad, id=f"bad/{n}/cpu-float64") for n in range(100)]
    tab = show(report(*cases))
    assert len(tab.run(SHOWN)) == 100
    tab.press("/", "/")
    tab.type("suite/1234/")
    assert tab.run(SHOWN) == ["suite/1234/cpu-float64"]


@pytest.mark.parametrize("cases", [(), (case(),), (skipped(),), (crashed(),)])
def test_reports_of_one_kind(show: Show, cases: tuple[Any, ...]) -> None:
    tab = show(report(*cases))
    assert tab.run("document.querySelector('h1').checkVisibility()")
    assert tab.run("document.querySelectorAll('.case').length") == len(cases)
    assert all(one.verdict in tuple(Verdict) for one in cases)
