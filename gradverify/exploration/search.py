"""The search: every change is tried in turn, what fails is made small, what backward refuses is a question."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import product
from typing import Any

from gradverify.case import Case, Exploring, Trying
from gradverify.checks import gradgradcheck
from gradverify.checks.contract import check as contract
from gradverify.deadline import OutOfTime, deadline_in
from gradverify.exploration.attempt import Attempt, attempt, broken_as_written, checks_of, looked_closer
from gradverify.exploration.change import Base, Change, Watching
from gradverify.exploration.discover import blocks_of, failure, is_same, refusal
from gradverify.exploration.exercised.uncovered import may_show_more, uncovered
from gradverify.exploration.exercised.watch import watch
from gradverify.exploration.exercised.watched import Watched, merge
from gradverify.exploration.harvest import seen_in
from gradverify.exploration.inputs import with_objects, written_out
from gradverify.exploration.judge import Outcome
from gradverify.exploration.proposals import arguments, sizes, values
from gradverify.exploration.propose import pairs, proposals
from gradverify.exploration.tools import Tools
from gradverify.result import Discovery, Exploration, Grade, Verdict

OnTry = Callable[[Trying], None]
_MOST_DISCOVERIES = 5  # of each grade; later ones are counted only
_MOST_PHRASES = 3  # that say where a discovery showed too
_MOST_REFUSED = 12  # changes of arguments that are combined with what they may need
_MOST_OUTPUTS = 200_000  # entries of the outputs beyond which a size is not made larger
_MOST_UNCONFIRMED = 5  # tries of one kind that seemed wrong and were not, before such tries are taken for right
_SHARE = 0.9  # of the case's time limit: that of one try, made small included, between calls of user code
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What a search has to know to go on, beside its results."""

    known: dict[_Key, int]  # this and what follows as in _Search
    unconfirmed: Counter[_Key]
    largest: dict[tuple[str, ...], int]
    watched: Watched
    right: tuple[int, ...]  # the numbers of the proposals
    refused: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Search:
    """The state of a search; the fields change."""

    base: Base
    budget: int
    tries: int = 0
    discoveries: list[Discovery] = field(default_factory=list)
    known: dict[_Key, int] = field(default_factory=dict)  # kinds of trouble, and the discovery of each
    unconfirmed: Counter[_Key] = field(default_factory=Counter)  # kinds of trouble that the check did not confirm
    largest: dict[tuple[str, ...], int] = field(default_factory=dict)  # sizes with large outputs, by inputs changed
    seen: set[bytes] = field(default_factory=set)  # digests of the inputs as written, and of those that were proposed
    lost: list[str] = field(default_factory=list)
    watched: Watched = field(default_factory=Watched)  # of the forwards and backwards of all tries
    missing: bool = True  # True as long as something was not seen to run
    right: dict[int, Change] = field(default_factory=dict)  # changes whose gradient is right, by number of proposal
    refused: dict[int, Change] = field(default_factory=dict)  # of arguments, that forward or backward does not take


def explore(case: Case, tools: Tools, request: Exploring, on_try: OnTry) -> Exploration:
    """Return what changing the inputs of a case finds.

    Raises nothing of user code. `on_try` is called before every try; if the try ends the process, the search can be
    started again after it, and finds what it would have found.
    """
    with suppress(Exception):  # of user code, which the first try meets again
        case = with_objects(case, tools)
    state = _Search(base=Base(case=case, tools=tools), budget=request.budget)
    state.base = replace(state.base, watching=_watching(state))
    state.seen.add(_digest(case))
    message, checks = _as_written(state)
    if not checks:
        return Exploration(tries=0, budget=request.budget, message=message)
    if checks != checks_of(case):
        state.base = replace(state.base, case=replace(case, checks=checks))
    state.base = replace(state.base, broken=cache(lambda: broken_as_written(state.base)))  # within the try's deadline
    state.base = replace(state.base, seen=seen_in(case, tools.functions, state.watched))
    state.missing = may_show_more(state.watched, tools.functions)
    _try_all(state, request.after, on_try)
    return replace(_so_far(state), uncovered=uncovered(state.watched, tools.functions), message=message)


def _try_all(state: _Search, after: Trying | None, on_try: OnTry) -> None:
    """Try all changes within the budget, from the first one or those after a try that ended the process."""
    right, refused = ((), ()) if after is None else _go_on(state, after)
    for number, change in enumerate(_all_changes(state)):
        if state.tries >= state.budget:
            break
        candidate = _applied(state, change)
        if after is not None and number <= after.number:
            if number in right:
                state.right[number] = change
            elif number in refused:
                state.refused[number] = change
        elif candidate is not None:
            on_try(_trying(state, number, change))
            outcome = _try(state, change, candidate)
            if outcome is Outcome.RIGHT:
                state.right[number] = change
            elif outcome in (Outcome.ILLEGAL, Outcome.REFUSED) and change.kind == arguments.KIND:
                state.refused[number] = change


def _trying(state: _Search, number: int, change: Change) -> Trying:
    memory = _Memory(
        known=state.known,
        unconfirmed=state.unconfirmed,
        largest=state.largest,
        watched=state.watched,
        right=tuple(state.right),
        refused=tuple(state.refused),
    )
    return Trying(so_far=_so_far(state), number=number, phrase=change.phrase, memory=pickle.dumps(memory))


def _go_on(state: _Search, after: Trying) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Take over what a search knew that ended during a try; return the numbers of its right and refused proposals."""
    state.tries = after.so_far.tries
    state.discoveries += after.so_far.discoveries
    state.lost += after.so_far.lost
    memory: _Memory = pickle.loads(after.memory)
    state.known |= memory.known
    state.unconfirmed += memory.unconfirmed
    state.largest |= memory.largest
    state.watched = merge(state.watched, memory.watched)
    state.missing = may_show_more(state.watched, state.base.tools.functions)
    return memory.right, memory.refused


def _watching(state: _Search) -> Watching:
    """Return a function that runs a forward or backward, and keeps what was seen of the user's code."""
    functions = state.base.tools.functions

    def run(call: Callable[[], Any]) -> Any:
        if not state.missing:
            return call()
        value, seen = watch(call, functions)
        merged = merge(state.watched, seen)
        if merged != state.watched:
            state.watched = merged
            state.missing = not state.tries or may_show_more(merged, functions)
        return value

    return run


def _so_far(state: _Search) -> Exploration:
    return Exploration(
        tries=state.tries, budget=state.budget, discoveries=tuple(state.discoveries), lost=tuple(state.lost)
    )


def _as_written(state: _Search) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong at the inputs as written, and the checks that tries are judged by; note what overwrites.

    There are no checks if the gradient is wrong already. A second derivative that is wrong, or that does not exist
    since backward is differentiable once only, is left out. What the contract finds is no obstacle.
    """
    base, checks = state.base, checks_of(state.base.case)
    try:
        first = attempt(base, base.case)
        if first.judged.outcome is Outcome.ILLEGAL:
            return f"the inputs as written cannot be tried: {first.judged.message}", ()
        if first.judged.outcome is Outcome.REFUSED:
            return f"at the inputs as written, {first.judged.message}", ()
        suspect = first.judged.outcome is Outcome.SUSPECT and first.check != contract.NAME
        result = looked_closer(base, first) if suspect else None
    except OutOfTime as error:
        return f"at the inputs as written, one forward and backward {error}", ()
    state.base = replace(base, overwrites=first.judged.overwrites)
    verdict = None if result is None else result.verdict
    if verdict is Verdict.FAIL and first.check != gradgradcheck.NAME:
        return "the gradient is wrong at the inputs as written", ()
    if verdict not in (Verdict.FAIL, Verdict.SKIP) or first.check != gradgradcheck.NAME:
        return "", checks
    others = tuple(check for check in checks if check != gradgradcheck.NAME)
    if others in ((), (contract.NAME,)):  # which compares no numbers
        why = "is wrong" if verdict is Verdict.FAIL else "does not exist"
        return f"the second derivative {why} at the inputs as written", ()
    left_out = "the second derivative is wrong at the inputs as written, and was left out"
    return left_out if verdict is Verdict.FAIL else "", others


def _all_changes(state: _Search) -> Iterator[Change]:
    """Yield single changes; if none of them shows a failure, then pairs.

    First an argument that was refused with what it may need, a size or positive constants, then legal changes of
    arguments and sizes with all others: those early in one list with more of the other than those late in it.
    """
    yield from proposals(state.base)
    if any(found.grade is Grade.FAILURE for found in state.discoveries):
        return
    for change in list(state.refused.values())[:_MOST_REFUSED]:
        needed = (*sizes.beside(state.base, change), *values.positive_constants(state.base))
        yield from (pairs(change, other) for other in needed)
    singles = list(state.right.values())
    firsts = [change for change in singles if change.kind in (arguments.KIND, sizes.SIZES)]
    seconds = [change for change in singles if change.kind not in (sizes.SIZES, sizes.RANK, "dtype", "layout")]
    places = product(range(len(firsts)), range(len(seconds)))
    for first, second in ((firsts[i], seconds[k]) for i, k in sorted(places, key=lambda at: (at[0] + 1) * (at[1] + 1))):
        if not set(first.names) & set(second.names) or second.kind != arguments.KIND:
            yield pairs(first, second)


def _applied(state: _Search, change: Change) -> Case | None:
    """Return the changed case; None if it cannot be made, or was proposed before."""
    try:
        candidate = change.apply(state.base.case)
    except KeyboardInterrupt:
        raise
    except Exception:
        return None
    if change.size is not None and change.size > state.largest.get(change.names, change.size):
        return None
    digest = _digest(candidate)
    if digest in state.seen:
        return None
    state.seen.add(digest)
    return candidate


def _digest(case: Case) -> bytes:
    return blake2b(written_out(case).encode()).digest()


def _try(state: _Search, change: Change, candidate: Case) -> Outcome:
    """Try a changed case, note what comes of it and return it; right is what the check finds nothing wrong with."""
    state.base = replace(state.base, deadline=deadline_in(_SHARE * state.base.case.timeout))
    outcome = Outcome.SUSPECT
    try:
        ran = state.watched.ran
        found = attempt(state.base, candidate, change.rules, asked=change.asks)
        runs_more = state.watched.ran != ran and contract.NAME not in change.asks
        if runs_more and found.judged.outcome is Outcome.RIGHT and contract.NAME in checks_of(state.base.case):
            with suppress(OutOfTime):  # it is right as far as the other checks see
                found = attempt(state.base, candidate, change.rules, asked=(contract.NAME,))
        outcome = found.judged.outcome
        if outcome is Outcome.ILLEGAL:
            return outcome
        state.tries += 1
        if change.size is not None and found.judged.outputs > _MOST_OUTPUTS:
            state.largest[change.names] = min(change.size, state.largest.get(change.names, change.size))
        if outcome is Outcome.REFUSED:
            _note(state, change, found, ("refused", change.kind, change.names, found.judged.message), refusal)
        elif outcome is Outcome.SUSPECT:
            # Other values of an argument may show other mistakes.
            what = (change.phrase,) if change.kind == arguments.KIND else change.names
            if not _note(state, change, found, (change.kind, what, found.check, found.judged.pairs), failure):
                outcome = Outcome.RIGHT
    except OutOfTime as error:
        state.lost.append(f"{change.phrase}: {error}")
    return outcome


def _note(
    state: _Search,
    change: Change,
    found: Attempt,
    key: _Key,
    discover: Callable[[Base, int, Change, Attempt], Discovery | None],
) -> bool:
    """Add a discovery, or count one like it before; return False if there is none."""
    if key in state.known:
        _count(state, state.known[key], change.phrase)
        return True
    if state.unconfirmed[key] >= _MOST_UNCONFIRMED:
        return False
    discovery = discover(state.base, state.tries, change, found)
    if discovery is None:
        state.unconfirmed[key] += 1
        return False
    alike = [k for k, other in enumerate(state.discoveries) if other.grade is discovery.grade]
    same = next((k for k in alike if is_same(state.discoveries[k], discovery)), None)
    # One mistake shows in many pairs with the argument that it needs.
    needed = [part.phrase for part in change.parts if part.kind == arguments.KIND]
    in_pairs: list[_Key] = [("pair", phrase, frozenset(blocks_of(discovery))) for phrase in needed]
    same = next((state.known[each] for each in in_pairs if state.known.get(each) in alike), same)
    if same is None and len(alike) < _MOST_DISCOVERIES:
        state.known |= dict.fromkeys([key, *in_pairs], len(state.discoveries))
        state.discoveries.append(discovery)
        return True
    state.known[key] = alike[-1] if same is None else same
    _count(state, state.known[key], change.phrase)
    return True


def _count(state: _Search, place: int, phrase: str) -> None:
    """Count one more try that is wrong as a discovery is; `phrase` says what it changes, if that is something new."""
    known = state.discoveries[place]
    told = (*known.changes, ", ".join(known.changes), *known.also_at)
    is_new = phrase not in told and len(known.also_at) < _MOST_PHRASES
    at = (*known.also_at, phrase) if is_new else known.also_at
    state.discoveries[place] = replace(known, also=known.also + 1, also_at=at)
