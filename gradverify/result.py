"""What came of a run: verdicts and the frozen values they travel in. Numbers and names, no tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gradverify.serial import LATER, to_plain
from gradverify.usage import Measured

SCHEMA_VERSION = 1
BLUNT = 1e-4  # a detection limit above this is told to the user
PRINTED = "; the last it printed:\n"  # in a case's message, between what happened and the end of its output
Index = tuple[int, ...]


class Verdict(StrEnum):
    """The answer of one check, or of one case."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    SKIP = "skip"


class ElementVerdict(StrEnum):
    """The answer for one entry of a Jacobian."""

    MATCH = "match"
    MISMATCH = "mismatch"
    KINK = "kink"  # the analytic value lies between the one-sided derivatives
    JUMP = "jump"  # the function itself jumps here: there is no derivative
    EDGE = "edge"  # the domain ends here: only one side could be evaluated
    UNDETERMINED = "undetermined"  # the numeric error bar is larger than what is allowed


class Against(StrEnum):
    """What the elements of a finding are held against; it decides how a report names their numbers."""

    DIFFERENCES = "differences"  # `analytic` is what backward says, `numeric` what finite differences say
    REFERENCE = "reference"  # `analytic` is what the function says, `numeric` what a reference in float64 says
    CPU = "cpu"  # `analytic` is what the function says on the case's device, `numeric` what it says on the CPU


class Method(StrEnum):
    """How the entries of a Jacobian were reached."""

    DENSE = "dense"
    STRUCTURED = "structured"
    PROBED = "probed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One entry d output[output_index] / d input[input_index], as claimed and as measured.

    A finding without `wrt` is about entries of the output itself, one without `of` about entries of a gradient for one
    cotangent: their elements have an index () for the tensor that does not apply.
    """

    output_index: Index  # place in the output tensor
    input_index: Index  # place in the input tensor
    value: float  # the input's value there
    analytic: float  # what backward says, or the function
    numeric: float  # what finite differences say, or the reference
    error_bar: float  # bound on the numeric value's own error
    error: float  # |analytic - numeric|
    allowed: float  # largest error that would have been accepted
    verdict: ElementVerdict
    reason: str = ""  # why it has this verdict
    ulps: float | None = field(default=None, metadata=LATER)  # error in units of the dtype's last place at `numeric`


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a check has to say, with the elements that show it."""

    code: str  # GVnnn, docs/checks.md
    verdict: Verdict
    of: str | None = None  # output concerned
    wrt: str | None = None  # input concerned
    message: str  # one sentence
    cause: str | None = None  # named pattern, only when measured to explain the error
    total: int = 0  # how many elements are concerned
    elements: tuple[Element, ...] = ()  # the worst of them, worst first
    against: Against = field(default=Against.DIFFERENCES, metadata=LATER)  # what the elements are held against


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOutcome:
    """What torch's own check said about the same problem."""

    name: str  # gradcheck or gradgradcheck
    verdict: Verdict  # pass, fail, error or skip
    message: str = ""  # first line of its message, or the reason of the skip


class AgreesWith(StrEnum):
    """Which value of an entry torch's own derivative agrees with."""

    NUMERIC = "numeric"
    ANALYTIC = "analytic"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchDerivative:
    """Torch's own derivative of the forward as plain code, in wrong entries of the output with the largest error."""

    agrees_with: AgreesWith
    entries: int  # how many were compared
    difference: float  # the largest relative difference from what it agrees with


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations:
    """How often user code was called."""

    forward: int = 0
    backward: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The answer of one check on one case."""

    check: str
    verdict: Verdict
    message: str = ""  # one sentence for the screen
    method: Method | None = None  # None where nothing was compared
    entries: int = 0  # Jacobian entries compared
    mismatched: int = 0
    kinks: int = 0
    undetermined: int = 0  # jumps, edges and undetermined entries
    max_error: float = 0.0  # largest |analytic - numeric| among the judged entries
    max_error_bar: float = 0.0
    detection_limit: float | None = None  # smallest relative error of one entry that would have been caught
    evaluations: Evaluations = Evaluations()
    torch: TorchOutcome | None = None
    findings: tuple[Finding, ...] = ()
    torch_derivative: TorchDerivative | None = field(default=None, metadata=LATER)  # None where it agrees with neither


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where `backward` is defined."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCheck:
    """What the spec expects of one check."""

    check: str
    verdict: Verdict
    cause: str | None = None  # where given, the cause of every wrong finding
    codes: tuple[str, ...] = ()  # where given, the codes of its findings, all of them and no other


class Side(StrEnum):
    """What never happened at a place in the code."""

    TRUE = "true"  # the condition was never true
    FALSE = "false"  # the condition was never false
    BELOW = "below"  # no value was below the lower bound
    ABOVE = "above"  # no value was above the upper bound
    WITHIN = "within"  # every value was beyond the bound
    RUN = "run"  # the line never ran
    DIFFERENTIATED = "differentiated"  # the argument held integers, though backward returns a gradient for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """A line that never ran, a condition that only ever took one side, or an argument that held integers only.

    Of an argument, `within` is the Function, and `line` that of its backward.
    """

    file: str
    line: int
    within: str  # the function that it stands in: forward, backward, or one that they call
    text: str  # the line, the condition or the argument, as it is written
    never: Side


class Grade(StrEnum):
    """What a finding of an exploration amounts to."""

    FAILURE = "failure"  # wrong numbers at an input near the one written
    EXTREME = "extreme"  # wrong numbers at an input far outside the range of the one written
    QUESTION = "question"  # forward accepts what backward then refuses, or the check cannot decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """An input at which something is wrong: the smallest found, and what it changes of the input written."""

    grade: Grade
    number: int  # of the legal try that found it, from 1
    changes: tuple[str, ...]  # what was changed, one phrase each: "stride: 1 (was 2)"
    inputs: str  # the inputs in YAML, a line each
    spec: str  # YAML of a spec that repeats it; "" where YAML has no word for an input
    message: str  # one sentence
    checks: tuple[CheckResult, ...] = ()  # those that fail there
    also: int = 0  # later tries that were wrong in the same way
    also_at: tuple[str, ...] = ()  # what some of them changed, where it was something else
    saved: str = ""  # the file that the spec was written to, "" if it was not


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Exploration:
    """What changing the inputs of a case found. True if the search ended by itself and found no failure."""

    tries: int  # legal ones: forward ran, and its outputs were finite
    budget: int  # the most legal tries
    discoveries: tuple[Discovery, ...] = ()
    lost: tuple[str, ...] = ()  # tries that crashed or hung, one phrase each
    uncovered: tuple[Uncovered, ...] = ()  # at the inputs written and at all tries
    message: str = ""  # why nothing was tried, why a check was left out, or what ended the search
    strict: bool = False  # extremes fail the case too
    broken: bool = field(default=False, metadata=LATER)  # gradverify itself raised, which ended the search

    def __bool__(self) -> bool:
        return not self.failing and not self.broken

    def __repr__(self) -> str:
        counts = [("try", "tries", self.tries)]
        for grade in Grade:
            counts += [(grade.value, f"{grade.value}s", number)] if (number := len(self._of(grade))) else []
        return f"<Exploration: {', '.join(f'{n} {one if n == 1 else many}' for one, many, n in counts)}>"

    @property
    def failing(self) -> tuple[Discovery, ...]:
        """What fails the case: failures, and extremes where the search is strict."""
        return (*self.failures, *(self.extremes if self.strict else ()))

    @property
    def failures(self) -> tuple[Discovery, ...]:
        """Wrong numbers at inputs near those written, in the order of their tries."""
        return self._of(Grade.FAILURE)

    @property
    def extremes(self) -> tuple[Discovery, ...]:
        """Wrong numbers at inputs far outside the range of those written."""
        return self._of(Grade.EXTREME)

    @property
    def questions(self) -> tuple[Discovery, ...]:
        """Inputs that forward accepts and backward refuses."""
        return self._of(Grade.QUESTION)

    def _of(self, grade: Grade) -> tuple[Discovery, ...]:
        return tuple(found for found in self.discoveries if found.grade is grade)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CaseResult:
    """The answer for one case: every check's verdict and the worst of them. True if it is as expected."""

    id: str
    spec: str  # path of the spec, "" for verify()
    line: int  # line of the case in it
    function: str  # as written in the spec
    source: Source | None
    device: str
    dtype: str
    sample: int
    seed: int
    verdict: Verdict
    expected: Verdict
    as_expected: bool
    seconds: float
    message: str = ""  # why, where the checks do not say it
    checks: tuple[CheckResult, ...] = ()
    known: str | None = field(default=None, metadata=LATER)  # why it may fail, where a baseline knows that it does
    expected_checks: tuple[ExpectedCheck, ...] = field(default=(), metadata=LATER)  # those that the spec mentions
    measured: Measured | None = field(default=None, metadata=LATER)  # memory and time, beside a reference
    rerun: tuple[str, ...] = field(default=(), metadata=LATER)  # options of its run that the command to repeat it needs
    uncovered: tuple[Uncovered, ...] = field(default=(), metadata=LATER)  # not exercised by the case's inputs
    explored: Exploration | None = field(default=None, metadata=LATER)  # None where the inputs were not changed
    note: str = field(default="", metadata=LATER)  # how the point differs from what the spec or the caller says
    draft: bool = field(default=False, metadata=LATER)  # it was skipped because its spec says that it is a draft

    def __bool__(self) -> bool:
        return self.as_expected

    def __repr__(self) -> str:
        counts = "".join(f", {check.check} {check.verdict.value} {_counts(check)}".rstrip() for check in self.checks)
        return f"<CaseResult {self.id}: {self.verdict.value}{counts}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the case as plain JSON values, non-finite numbers as strings."""
        plain = to_plain(self)
        assert isinstance(plain, dict)
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the run took place."""

    python: str
    torch: str
    platform: str
    devices: tuple[str, ...]
    seed: int | None  # --seed, None when every spec kept its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts over all cases of a run."""

    cases: int
    as_expected: int
    unexpected: int
    passed: int
    failed: int
    inconclusive: int
    errors: int
    skipped: int
    seconds: float


class Stop(StrEnum):
    """Why a run ended before its last case."""

    FAIL_FAST = "-x"
    INTERRUPT = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """A case that was to run and did not."""

    id: str
    why: Stop
    failed: bool = False  # it was not as expected when it last ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One part of the cases of a run that several jobs share."""

    index: int  # from 1
    of: int  # how many parts there are

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything one run has to say."""

    schema_version: int = SCHEMA_VERSION
    gradverify: str  # version
    environment: Environment
    summary: Summary
    shard: Shard | None = field(default=None, metadata=LATER)  # the part that was run; None for all, and once merged
    missing_shards: tuple[Shard, ...] = field(default=(), metadata=LATER)  # those that a merged report had no part of
    not_run: tuple[NotRun, ...] = field(default=(), metadata=LATER)
    engine: str = field(default="local", metadata=LATER)  # where the cases ran: local, ray
    cases: tuple[CaseResult, ...]


WORST_FIRST = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.SKIP)


def without_output(message: str) -> str:
    """Return what happened, as one sentence: a case's message without the end of what it had printed."""
    return message.partition(PRINTED)[0]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that decides: a proven fail before an error, skip only when nothing ran."""
    found = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in found), Verdict.SKIP)


def summarize(cases: Iterable[CaseResult], seconds: float) -> Summary:
    """Count the cases by verdict; `seconds` is the wall time of the run."""
    found = tuple(cases)
    count = {verdict: sum(case.verdict is verdict for case in found) for verdict in Verdict}
    expected = sum(case.as_expected for case in found)
    return Summary(
        cases=len(found),
        as_expected=expected,
        unexpected=len(found) - expected,
        passed=count[Verdict.PASS],
        failed=count[Verdict.FAIL],
        inconclusive=count[Verdict.INCONCLUSIVE],
        errors=count[Verdict.ERROR],
        skipped=count[Verdict.SKIP],
        seconds=seconds,
    )


def _counts(check: CheckResult) -> str:
    """Return how many entries are wrong, of how many; "" where none were compared."""
    return f"{check.mismatched}/{check.entries}" if check.mismatched else f"{check.entries or ''}"
