"""`python -m gradverify` and the console script."""

from __future__ import annotations

import sys

_COMMANDS_THAT_RUN_CASES = (["run"], ["check"], ["explore"])


def main() -> None:
    """Run the command line."""
    from gradverify.cli.starting import end_on_interrupt

    end_on_interrupt()  # starting takes some tenths of a second
    from gradverify.cli.streams import open_closed_streams

    open_closed_streams()
    if sys.argv[1:2] in _COMMANDS_THAT_RUN_CASES and not {"-h", "--help"} & {*sys.argv}:
        from gradverify.run.start_server import start_early

        start_early()
    from gradverify.cli.app import app
    from gradverify.cli.exits import unwritten
    from gradverify.errors import GradverifyError

    try:
        app()
    except (GradverifyError, OSError) as error:  # help and version are printed outside of every command
        raise SystemExit(int(unwritten(error))) from None


if __name__ == "__main__":
    main()
