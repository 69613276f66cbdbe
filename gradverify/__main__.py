"""`python -m gradverify` and the console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from gradverify.cli.app import app

    app()


if __name__ == "__main__":
    main()
