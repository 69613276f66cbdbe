"""`gradverify explore`: verify the cases of specs, then change their inputs in search of a wrong gradient."""

from __future__ import annotations

from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode
from gradverify.cli.gather import specs_in
from gradverify.cli.request import exploring, requested
from gradverify.cli.run import verify


def explore(
    paths: opt.Paths = None,
    save: opt.SaveFound = None,
    *,
    other_inputs: opt.OtherInputs,
    selection: opt.Selection,
    case_filter: opt.CaseFilter,
    case_settings: opt.CaseSettings,
    execution: opt.Execution,
    outputs: opt.Outputs,
    baseline: opt.BaselineFiles,
    screen: opt.Screen,
) -> ExitCode:
    """Verify the gradients that specs describe, then change the inputs in search of one at which they are wrong.

    Each try changes an argument, a size or the values of a tensor. It counts if forward runs and returns finite
    numbers. What a spec says under `explore` keeps tries legal.

    Ends as `run` does: with 0 when every case is as expected, 1 when some case is not, also at a changed input, 2 when
    the command or a spec has a mistake or output could not be written, 3 for a defect of gradverify itself, and 130
    when it was interrupted.
    """
    given = exploring(requested(case_filter, case_settings, execution, selection, other_inputs), save)
    return verify(specs_in(paths), given, selection=selection, outputs=outputs, baseline=baseline, screen=screen)
