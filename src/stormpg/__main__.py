"""The command `stormpg`, also as `python -m stormpg`."""

import sys

from stormpg.errors import extra_for


def main() -> None:
    """Run the command, or say which extra it needs."""
    try:
        from stormpg.cli import main as command

        command()
    except ModuleNotFoundError as error:
        hint = extra_for(error)
        if hint is None:
            raise
        print(f"stormpg: {hint}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
