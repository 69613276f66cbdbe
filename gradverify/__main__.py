"""`python -m gradverify` and the console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    try:
        from gradverify.cli.app import app
    except KeyboardInterrupt:  # the first tenth of a second is spent on imports
        raise SystemExit(130) from None

    app()


if __name__ == "__main__":
    main()
