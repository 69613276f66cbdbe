"""`gradverify check`: verify one function at inputs that the command line describes, without a spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli import engine
from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.files import why_no_folder, why_unwritable
from gradverify.cli.gather import Source
from gradverify.cli.request import Request, exploring, refuse_without_exploring, requested
from gradverify.cli.run import verify
from gradverify.cli.terminal import complain
from gradverify.report.reproduce import check_command
from gradverify.spec.save import write_whole

if TYPE_CHECKING:
    from gradverify.spec.arguments import Words
    from gradverify.spec.model import Spec

_SUFFIXES = (".yaml", ".yml")


def check(
    target: opt.TargetName,
    inputs: opt.InputWords = None,
    reference: opt.Reference = None,
    rtol: opt.Rtol = None,
    atol: opt.Atol = None,
    explore: opt.Explore = False,
    save: opt.SaveSpec = None,
    *,
    other_inputs: opt.OtherInputs,
    case_filter: opt.CaseFilter,
    case_settings: opt.CaseSettings,
    execution: opt.Execution,
    outputs: opt.Outputs,
    screen: opt.Screen,
) -> ExitCode:
    """Verify the gradient of one function, without a spec.

    x:2,3 is a tensor of shape [2, 3], and clip=1.5 a value: YAML, as under `inputs` in a spec. Inputs that are left out
    have forward's defaults. init.size=3 is an argument of an nn.Module's constructor.

    Ends as `run` does.
    """
    given = requested(case_filter, case_settings, execution, opt.Selection(), other_inputs)
    if explore:
        given = exploring(given)
    else:
        refuse_without_exploring(given)
    words = engine.words_of(target, inputs or (), reference, rtol=rtol, atol=atol)
    reading = engine.read_words(words, save)
    text = "" if save is None or not reading.specs else _text(reading.specs, given, save, words)
    source = Source(read=lambda _: reading, word="argument", repeated=() if save is not None else _written(words))
    ended = verify(source, given, outputs=outputs, screen=screen)
    if save is not None and ended in (ExitCode.OK, ExitCode.UNEXPECTED):
        return _write(save, text) or ended
    return ended


def _written(words: Words) -> tuple[str, ...]:
    """Return the words as they stand on the command line."""
    options = {**({"reference": words.reference} if words.reference else {}), **words.tolerances}
    return (words.target, *words.inputs, *(word for key, text in options.items() for word in (f"--{key}", text)))


def _text(specs: Sequence[Spec], given: Request, path: Path, words: Words) -> str:
    """Return the spec to save. Raises UsageProblem if its file has other content, or cannot be written."""
    text = engine.saved_text(specs, given, path.absolute().parent, comment=check_command(_written(words)))
    if path.suffix not in _SUFFIXES:
        raise UsageProblem(f"--save {path}: specs end in .yaml or .yml")
    why = why_unwritable(path) if path.parent.exists() else why_no_folder(path.parent)
    if why:
        raise UsageProblem(f"--save {path}: {why}")
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
        raise UsageProblem(f"--save {path}: there is such a file, with other content; name another one, or remove it")
    return text


def _write(path: Path, text: str) -> ExitCode | None:
    """Write the spec; return USAGE if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        complain(f"could not write {path}: {error.strerror or error}")
        return ExitCode.USAGE
    complain(f"saved as {path}")
    return None
