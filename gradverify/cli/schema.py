"""`gradverify schema`: the JSON Schema of the spec language, for editors."""

from __future__ import annotations

import json

from gradverify.cli import engine
from gradverify.cli.exits import ExitCode
from gradverify.cli.terminal import say


def schema() -> ExitCode:
    """Print the JSON Schema of specs, for editors."""
    say(json.dumps(engine.schema(), indent=2, ensure_ascii=False) + "\n")
    return ExitCode.OK
