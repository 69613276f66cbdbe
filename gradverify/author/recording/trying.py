"""Documents that were run before they are written: forward and backward run at small sizes, and at recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from gradverify.author.recording.documents import (
    LOW_PRECISION,
    Plan,
    as_draft,
    case_dtype,
    document_of,
    double_of,
    fits,
)
from gradverify.author.recording.groups import Group, is_differentiable, tensors_of, why_no_word
from gradverify.author.recording.sizes import smaller_sizes
from gradverify.problem import OUT_OF_TIME, ran_out_of_time
from gradverify.result import CaseResult, CheckResult, Verdict, without_output
from gradverify.run.options import RunOptions
from gradverify.run.session import run_cases
from gradverify.run.task import Engine
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.files import SpecFile
from gradverify.spec.model import Spec
from gradverify.spec.read import read_spec
from gradverify.spec.write import document_text

_CHECKS = ("gradcheck",)  # tells whether forward and backward run, and whether the values are any use
_REFERENCE = "reference"  # tells whether torch's own derivative of the forward serves in place of differences
_TIMEOUT = 20.0  # seconds for one try
_SHORT = 5.0  # seconds for a try at recorded sizes; a case that takes longer gets more time than others
_EVALUATIONS = 20  # in a Jacobian too large to write down
_MOST_TRIES = 24  # of small cases of one group
_NOT_LOADED, _REJECTED = "GV901", "GV312"
_NOT_TRIED = "not tried, since recording was interrupted; remove the file and record again"
_USEFUL = (Verdict.PASS, Verdict.FAIL)


@dataclass(slots=True, kw_only=True)
class _Search:
    """The tries of one group. The fields change while it is tried."""

    group: Group
    plans: Iterator[Plan]  # to try, the best first
    recorded: Plan  # with the recorded sizes alone
    chosen: Plan | None = None
    second: Plan | None = None  # one that runs, but shows nothing
    reason: str = ""  # why the first one did not run


def tried_plans(
    groups: Sequence[tuple[Group, Plan]], folders: Sequence[Path], engine: Engine
) -> tuple[tuple[Plan, ...], bool]:
    """Return a plan for each group whose forward and backward run, a draft if there is none; and if it was interrupted.

    `folders` are those that the documents are to be written into. What was not tried before an interrupt is a draft.
    """
    interrupted = False
    searches = [_search(group, plan) for group, plan in groups]
    try:
        while open_ones := [search for search in searches if search.chosen is None]:
            proposed = {id(search): next(search.plans, None) for search in open_ones}
            _try_all(searches, folders, {key: plan for key, plan in proposed.items() if plan}, engine)
            for search in open_ones:
                if proposed[id(search)] is None:
                    search.chosen = search.second or as_draft(search.recorded, _reason(search))
        _drop_recorded_that_do_not_run(searches, folders, engine)
    except KeyboardInterrupt:
        interrupted = True
    plans = (search.chosen or search.second or as_draft(search.recorded, _NOT_TRIED) for search in searches)
    return tuple(plans), interrupted


def _search(group: Group, plan: Plan) -> _Search:
    reason = why_no_word(group)
    draft = as_draft(plan, reason) if reason else None
    return _Search(group=group, plans=_plans(group, plan), recorded=plan, chosen=draft)


def _plans(group: Group, plan: Plan) -> Iterator[Plan]:
    """Yield plans with a small case, and at last the one without."""
    yield from islice(_small_plans(group, plan), _MOST_TRIES)
    yield plan


def _small_plans(group: Group, plan: Plan) -> Iterator[Plan]:
    own = case_dtype(group.signatures[0])
    for named, sizes in smaller_sizes(group, plan.named):
        if not fits(group, named, sizes):
            continue
        for dtype in dict.fromkeys((double_of(own), own)):
            yield replace(plan, named=named, small=sizes, dtype=dtype)


def _reason(search: _Search) -> str:
    """Return why no plan runs, with the inputs whose values may matter."""
    whole = [name for name, tensor in tensors_of(search.group.signatures[0]).items() if not is_differentiable(tensor)]
    if not whole or search.recorded.files or not search.reason.startswith("GV90"):
        return search.reason
    return f"{search.reason}; if the values of {', '.join(whole)} matter, record again with --values"


def _try_all(
    searches: Sequence[_Search], folders: Sequence[Path], proposed: Mapping[int, Plan], engine: Engine
) -> None:
    """Run a case of each proposed plan, and choose those that run."""
    texts = {
        number: (document_text(_alone(search.group, proposed[id(search)])), folders[number])
        for number, search in enumerate(searches)
        if id(search) in proposed
    }

    def judge(number: int, result: CaseResult | str) -> None:
        search = searches[number]
        plan = proposed[id(search)]
        if isinstance(result, CaseResult):
            rejected = _is_rejected(result)
            if not rejected and result.verdict in (*_USEFUL, Verdict.SKIP):
                search.chosen = plan
                return
            if rejected or (result.verdict is Verdict.INCONCLUSIVE and not _is_late(result)):
                search.second = search.second or plan
                return
        why = result if isinstance(result, str) else _why(result)
        search.reason = search.reason or why
        if isinstance(result, str) or why.startswith(_NOT_LOADED):  # so it is at other sizes too
            search.plans = iter(())

    _run(texts, judge, engine)


def _alone(group: Group, plan: Plan) -> dict[str, object]:
    """Return the document with the one case that is tried."""
    document = document_of(group, replace(plan, recorded=plan.small is None))
    if "cases" in document:
        cases = document.pop("cases")
        document["cases"] = {"try": next(iter(cases.values()))}
    return document


def _drop_recorded_that_do_not_run(searches: Sequence[_Search], folders: Sequence[Path], engine: Engine) -> None:
    """Leave the recorded sizes out of plans that do not run there."""
    texts: dict[int, tuple[str, Path]] = {}
    for number, search in enumerate(searches):
        if search.chosen is not None and search.chosen.small is not None and not search.chosen.draft:
            document = document_of(search.group, search.chosen)
            if "cases" in document:
                texts[number] = document_text(document), folders[number]

    def judge(number: int, result: CaseResult | str) -> None:
        search = searches[number]
        assert search.chosen is not None
        why = result if isinstance(result, str) else _why(result)
        if not isinstance(result, str) and (result.seconds > _SHORT or _is_late(result) or OUT_OF_TIME in why):
            search.chosen = replace(search.chosen, patient=True)
        elif isinstance(result, str) or result.verdict is Verdict.ERROR:
            search.chosen = replace(search.chosen, recorded=False, why_not_recorded=why)
        elif result.dtype in LOW_PRECISION and any(map(_is_compared, result.checks)):
            search.chosen = replace(search.chosen, compared=search.chosen.compared | {result.dtype})

    is_low = any(case_dtype(each) in LOW_PRECISION for search in searches for each in search.group.signatures)
    _run(texts, judge, engine, checks=(*_CHECKS, _REFERENCE) if is_low else _CHECKS, timeout=2 * _SHORT)


def _run(
    texts: Mapping[int, tuple[str, Path]],
    judge: Callable[[int, CaseResult | str], None],
    engine: Engine,
    *,
    checks: Sequence[str] = _CHECKS,
    timeout: float = _TIMEOUT,
) -> None:
    """Run the cases of documents and have each judged. Raises KeyboardInterrupt."""
    specs: list[Spec] = []
    for number, (text, folder) in texts.items():
        place = folder / f"{number}.yaml"
        reading = read_spec(text, SpecFile(path=Path(str(number)), location=place, name=str(number)))
        specs += reading.specs
        for error in reading.errors[:1]:
            judge(number, str(error.problem))
    asked = Overrides(checks=tuple(checks), timeout=timeout, max_evaluations=_EVALUATIONS)
    cases = expand(specs, asked)
    outcome = run_cases(cases, specs, RunOptions(keep_going=True), lambda _: None, engine=engine)
    for error in outcome.errors:
        judge(int(error.where.file), str(error.problem))
    for result in outcome.report.cases:
        judge(int(result.spec), result)
    if outcome.interrupted:
        raise KeyboardInterrupt


def _is_compared(check: CheckResult) -> bool:
    """True if a check compared with torch's own derivative, since no reference is given."""
    return check.check == _REFERENCE and check.verdict in _USEFUL


def _is_rejected(result: CaseResult) -> bool:
    """True if autograd rejects what backward returns: forward may take sizes that were not meant."""
    return any(finding.code == _REJECTED for check in result.checks for finding in check.findings)


def _is_late(result: CaseResult) -> bool:
    return any(map(ran_out_of_time, result.checks))


def _why(result: CaseResult) -> str:
    """Return why a case could not be judged, in one line."""
    messages = [result.message, *(finding.message for check in result.checks for finding in check.findings)]
    messages += [check.message for check in result.checks]
    codes = [finding.code for check in result.checks for finding in check.findings][:1]
    text = without_output(next((message for message in messages if message), "")).partition("\n")[0]
    return text if text.startswith("GV") or not codes else f"{codes[0]}: {text}"
