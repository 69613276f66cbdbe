"""What was found at other inputs: on the screen, in `inspect`, and in the reports for other programs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from explored_specimens import NEVER_RAN, exploration, explored, extreme, failure, question
from report_specimens import case, masked, report

from gradverify.catalogue import sections
from gradverify.problem import own_message, problems_of
from gradverify.report.case_brief import case_brief
from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.case_lines import Planned, case_line, case_lines, planned_widths
from gradverify.report.ci.github import workflow_commands
from gradverify.report.ci.junit import to_junit
from gradverify.report.ci.markdown import to_markdown
from gradverify.report.ci.places import Checkout
from gradverify.report.ci.sarif import to_sarif
from gradverify.report.explored_view import exploration_text
from gradverify.report.inspect_view import InspectOptions, inspect_lines, with_something
from gradverify.report.lines import cells, plain, to_text
from gradverify.report.reproduce import reproduce_command
from gradverify.report.screen import ASCII, Detail, Screen
from gradverify.report.terminal import report_lines
from gradverify.report.to_json import from_json, to_json
from gradverify.result import CaseResult, Verdict

LOST = "size: 4 (was 2): crashed: SIGABRT (Aborted), last in ops.py:40 in forward"
SURROGATE = "backward is the derivative of a surrogate, which is not that of forward"


def brief(result: CaseResult) -> str:
    return to_text(case_brief(result, Screen()))


def whole(*cases: CaseResult, detail: Detail = Detail.NORMAL) -> str:
    return to_text(report_lines(report(*cases), Screen(), DetailOptions(detail=detail)))


def test_a_failure_shows_what_was_changed_the_inputs_the_table_and_the_cause() -> None:
    assert brief(explored(failure(also=2))) == (
        "✗ FAIL  pool/Pool/cpu-float64  ─────────────────────────────────────────────────\n"
        "  specs/pool.yaml:12, ops.py:Pool, backward at specs/ops/clipped_relu.py:31\n"
        "  ✗ found at try 9 of 120: stride: 1 (was 2)\n"
        "    x: {values: [[1.0, 2.0, 3.0]]}\n"
        "    stride: 1\n"
        "    size: 2\n"
        "    ✗ gradcheck GV101: 1 entry of d output / d x differs\n"
        "      input  value  output     analytic     numeric ± bar  error  allowed  ratio\n"
        "      x[1]       1  output[1]         0  1.000000 ± 5e-15      1    3e-10  3.3e9\n"
        "      cause missing-broadcast-sum: each entry of x gets its gradient from the\n"
        "      last output that it goes into: the sum over all of them is missing\n"
        "    2 later tries seem wrong in the same way\n"
        "  reproduce: gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64'\n"
        "  with --save DIR, gradverify explore writes it as a spec\n"
    )


def test_where_a_failure_is_a_spec() -> None:
    saved = brief(explored(failure(saved="found/pool-stride.yaml")))
    assert "\n    as a spec: found/pool-stride.yaml\n  reproduce:" in saved and "--save" not in saved
    unwritten = brief(explored(failure(spec="", inputs="")))
    assert "\n    not written as a spec: YAML has no word for one of its inputs\n  reproduce:" in unwritten
    assert "--save" not in unwritten


def test_a_long_input_is_cut_and_inspect_shows_it_whole() -> None:
    numbers = ", ".join(f"{number}.0" for number in range(100))
    long = explored(failure(inputs=f"x: {{values: [{numbers}]}}"))
    assert "  10.0, 11.0" not in brief(long) and "99.0" not in brief(long)
    assert brief(long).count("…\n") == 1
    assert "99.0" in to_text(inspect_lines([long], Screen(), InspectOptions()))


def test_the_line_of_a_case_has_its_tries() -> None:
    none = exploration(tries=0, message="the inputs as written fail")
    rows = case_lines(
        [explored(failure()), explored(question()), case("a/b/cpu", explored=none), case("a/c/cpu")], Screen()
    )
    assert [plain(row) for row in rows] == [
        "✗ FAIL   pool/Pool/cpu-float64  ✓ 3 checks 55  ✗ explore 120 tries        0.02 s",
        "✓ pass   pool/Pool/cpu-float64  ✓ 3 checks 55  ✓ explore 120 tries        0.02 s",
        "✓ pass   a/b/cpu                ✓ 3 checks 55  - explore 0 tries          0.02 s",
        "✓ pass   a/c/cpu                ✓ 3 checks 55                             0.02 s",
    ]


def test_lines_that_are_printed_one_by_one_have_room_for_the_tries() -> None:
    checks = ("gradcheck", "gradgradcheck", "contract")
    widths = planned_widths([Planned(id="pool/Pool/cpu-float64", checks=checks, tries=400)], Screen())
    (row,) = case_line(explored(failure()), widths, Screen())
    assert plain(row) == "✗ FAIL   pool/Pool/cpu-float64  ✓ 3 checks 55  ✗ explore 120 tries        0.02 s"


def test_questions_extremes_and_tries_that_did_not_finish_are_remarks() -> None:
    text = whole(
        explored(question(), extreme(), lost=(LOST,)), case("s/f/cpu", explored=exploration(tries=0, message=SURROGATE))
    )
    assert text.partition("\n\n")[2] == (
        "- pool/Pool/cpu-float64: question at try 30: size: 3 (was 2): forward runs and\n"
        "  backward raises only windows of one or two entries\n"
        "- pool/Pool/cpu-float64: extreme at try 42: x: × 1e+08: 1 entry of d output / d\n"
        "  x differs; worst output[1] by x[1]: backward says 0, differences say 1 ± 5e-15\n"
        "- pool/Pool/cpu-float64: a try did not finish: size: 4 (was 2): crashed: SIGABRT\n"
        "  (Aborted), last in ops.py:40 in forward\n"
        f"- 1 case not explored: {SURROGATE.removesuffix(' that of forward')}\n"
        "  that of forward\n"
        "- 1 case explored, 120 tries, 1 extreme, 1 question, 1 try not finished\n"
        "✓ 2 cases as expected: 2 pass in 1.23 s\n"
    )


def test_why_a_case_that_fails_was_not_explored_is_told() -> None:
    failing = replace(explored(failure()), explored=exploration(tries=0, message="the inputs as written fail"))
    text = whole(failing)
    assert "\n- 1 case not explored: the inputs as written fail\n" in text
    assert "0 tries" not in text.partition("\n- ")[2]


def test_first_remark_of_every_case_comes_before_the_second_of_any() -> None:
    many = explored(*(question(number=number) for number in range(1, 8)))
    other = replace(explored(question(number=99)), id="pool/other/cpu-float64")
    rows = [row for row in whole(many, other).splitlines() if "question at try" in row]
    assert ["other" in row for row in rows] == [False, True, False, False, False]


def test_few_remarks_are_listed_and_none_with_q() -> None:
    many = explored(*(question(number=number) for number in range(1, 8)))
    assert whole(many).count("question at try") == 5
    assert "\n- and 2 more: -v\n" in whole(many)
    assert whole(many, detail=Detail.QUIET) == (
        "- 1 case explored, 120 tries, 7 questions\n✓ 1 case as expected: 1 pass in 1.23 s\n"
    )
    assert whole(many, detail=Detail.VERBOSE).count("question at try") == 7


def test_extremes_are_shown_as_failures_where_they_fail_the_case() -> None:
    strict = explored(extreme(), strict=True)
    assert "  ✗ extreme, found at try 42 of 120: x: × 1e+08\n" in brief(strict)
    assert "  gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64' --strict\n" in brief(strict)
    assert "extreme at try" not in whole(strict)


def test_what_no_try_exercised_is_told_in_place_of_what_the_written_inputs_did_not() -> None:
    other = replace(NEVER_RAN, line=20, text="return x")
    assert "- not exercised: `y = y + b` in backward at ops.py:14 never ran\n" in whole(
        explored(uncovered=(NEVER_RAN,))
    )
    told = whole(case(uncovered=(NEVER_RAN, other), explored=exploration(uncovered=(other,))))
    assert "ops.py:20" in told and "ops.py:14" not in told
    assert "ops.py:14" in whole(case(uncovered=(NEVER_RAN,), explored=exploration(tries=0)))


def test_verbose_and_python_show_counts_and_remarks() -> None:
    result = explored(question(), lost=(LOST,), uncovered=(NEVER_RAN,))
    end = (
        "explore: ✓ pass  120 tries with other inputs, 1 question\n"
        "  question at try 30: size: 3 (was 2): forward runs and backward raises only\n"
        "    windows of one or two entries\n"
        "  a try did not finish: size: 4 (was 2): crashed: SIGABRT (Aborted), last in\n"
        "    ops.py:40 in forward\n"
    )
    shown = to_text(case_detail(result, Screen(), DetailOptions(detail=Detail.VERBOSE)))
    assert shown.endswith("\n".join(f"  {row}" if row else "" for row in end.split("\n")))
    assert result.explored is not None
    text = exploration_text(result.explored, 80)
    assert text == f"{end}not exercised: `y = y + b` in backward at ops.py:14 never ran"


def test_nothing_tried_says_why() -> None:
    none = case(explored=exploration(tries=0, message="forward cannot run at the inputs as written: no"))
    shown = to_text(case_detail(none, Screen(), DetailOptions(detail=Detail.VERBOSE)))
    assert "\n  explore: - skip  nothing was tried: forward cannot run at the inputs as\n" in shown


def test_python_shows_a_failure_as_inspect_does() -> None:
    result = explored(failure())
    assert result.explored is not None
    text = exploration_text(result.explored, 80)
    assert text.startswith("✗ found at try 9 of 120: stride: 1 (was 2)\n  x: {values: [[1.0, 2.0, 3.0]]}\n")
    assert text.endswith("\nexplore: ✗ fail  120 tries with other inputs, 1 failure")
    seen = to_text(inspect_lines([result], Screen(), InspectOptions()))
    assert "\n  ✗ found at try 9 of 120: stride: 1 (was 2)\n    x: {values" in seen
    assert "\n    gradcheck: ✗ fail\n      GV101  1 entry of d output / d x differs" in seen


def test_inspect_shows_cases_with_questions() -> None:
    cases = [explored(question()), explored(extreme()), explored()]
    assert with_something(cases) == [cases[1], cases[0]]
    assert "? extreme, found at try 42 of 120" in to_text(inspect_lines(cases[1:2], Screen(), InspectOptions()))


def test_a_failure_is_a_problem_whose_message_begins_with_what_was_changed() -> None:
    result = explored(failure(), question())
    (problem,) = problems_of(result)
    assert (problem.check, problem.code, problem.verdict) == ("gradcheck", "GV101", Verdict.FAIL)
    assert problem.message.startswith("stride: 1 (was 2): 1 entry of d output / d x differs; worst")
    assert problem.changed == "stride: 1 (was 2)"
    assert problem.finding is not None and problem.finding.elements
    assert own_message(result) == ""
    assert own_message(replace(result, message=f"{result.message}; beyond the baseline: x")) == "beyond the baseline: x"
    assert own_message(masked()) == masked().message


def test_other_programs_are_told_what_was_changed() -> None:
    told = report(explored(failure(), failure(number=12, changes=("size: 3 (was 2)",))))
    says = "gradcheck GV101: stride: 1 (was 2): 1 entry of d output / d x differs"
    assert says in workflow_commands(told, Checkout())
    assert says in to_junit(told) and "found at try 9 of 120" in to_junit(told)
    assert "**gradcheck GV101**: stride: 1 (was 2): 1 entry" in to_markdown(told)
    results = json.loads(to_sarif(told, sections(), Checkout()))["runs"][0]["results"]
    assert len({result["partialFingerprints"]["gradverify/v1"] for result in results}) == 2
    assert says.removeprefix("gradcheck GV101: ") in json.dumps(results)
    for text in (workflow_commands(told, Checkout()), to_markdown(told)):
        assert "gradverify explore specs/pool.yaml" in text and "Also: found" not in text


@pytest.mark.parametrize(
    ("result", "command"),
    [
        (explored(failure()), "gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64'"),
        (
            explored(failure(), rerun=("--budget", "20", "--seed", "3")),
            "gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64' --budget 20 --seed 3",
        ),
        (
            replace(
                masked(),
                explored=exploration(tries=0, message="the inputs as written fail"),
                rerun=("--budget", "20", "--seed", "3"),
            ),
            "gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64' --seed 3",
        ),
        (
            explored(failure(), rerun=("--no-drafts", "--budget", "20")),
            "gradverify explore specs/pool.yaml -k 'pool/Pool/cpu-float64' --no-drafts --budget 20",
        ),
        (
            explored(failure(), spec="", rerun=("pool.py:Pool", "x:2,8", "size=2", "--budget", "20", "--seed", "3")),
            "gradverify check pool.py:Pool x:2,8 size=2 --budget 20 --seed 3 --explore",
        ),
        (
            explored(extreme(), spec="", strict=True, rerun=("pool.py:Pool", "x:2,8", "--reference", "pool.py:plain")),
            "gradverify check pool.py:Pool x:2,8 --reference pool.py:plain --explore --strict",
        ),
        (
            replace(
                masked(),
                spec="",
                explored=exploration(tries=0, message="the inputs as written fail"),
                rerun=("ops.py:ClippedReLU", "x:5", "--budget", "20"),
            ),
            "gradverify check ops.py:ClippedReLU x:5",
        ),
    ],
)
def test_the_command_that_repeats_a_case(result: CaseResult, command: str) -> None:
    assert reproduce_command(result) == command


def test_a_report_with_explorations_is_read_back() -> None:
    told = report(explored(failure(), extreme(), question(), lost=(LOST,), uncovered=(NEVER_RAN,), strict=True))
    assert from_json(to_json(told)) == told


@pytest.mark.parametrize("detail", list(Detail))
def test_what_is_changed_cannot_steer_a_terminal(detail: Detail) -> None:
    evil = "mode: \x1b[2J::error::x"
    found = failure(changes=(evil,), inputs=f"{evil}\n{evil}", saved=f"found/{evil}")
    told = report(explored(found, question(changes=(evil,), message=evil), lost=(evil,)))
    text = to_text(report_lines(told, Screen(), DetailOptions(detail=detail)))
    assert "\x1b" not in text and "\\x1b[2J" in text
    assert "\x1b" not in workflow_commands(told, Checkout()) + to_markdown(told)


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("width", [60, 80, 100])
def test_nothing_is_wider_than_the_screen(detail: Detail, width: int) -> None:
    found = (failure(), extreme(), question())
    told = report(explored(*found, lost=(LOST,), uncovered=(NEVER_RAN,), strict=True), explored(*found[1:]))
    rows = report_lines(told, Screen(width=width, glyphs=ASCII), DetailOptions(detail=detail))
    commands = ("gradverify explore", "gradverify inspect")
    wide = [plain(row) for row in rows if cells(plain(row)) > width]
    assert not [row for row in wide if not row.strip().startswith(commands)]
    if width >= 80:
        assert not wide
