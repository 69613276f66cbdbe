"""`python -m gradverify` and the console script."""

from __future__ import annotations

from gradverify.errors import GradverifyError


def main() -> None:
    """Run the command line."""
    try:
        from gradverify.cli.streams import open_closed_streams

        open_closed_streams()
        from gradverify.cli.app import app
        from gradverify.cli.exits import unwritten
    except KeyboardInterrupt:  # the first tenth of a second is spent on imports
        raise SystemExit(130) from None

    try:
        app()
    except (GradverifyError, OSError) as error:  # help and version are printed outside of every command
        raise SystemExit(int(unwritten(error))) from None


if __name__ == "__main__":
    main()
