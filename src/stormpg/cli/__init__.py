"""The command `stormpg`. Its parts register themselves: about (list, doctor), training, looking (render), studies, tuning,
speed and theory.
"""

import sys
import warnings
from typing import Any

from stormpg.cli import about, looking, speed, studies, theory, training, tuning
from stormpg.cli.base import app
from stormpg.compiler import keep_programs
from stormpg.errors import EnvironmentFailure, InputError, PartsFailed, StormpgWarning
from stormpg.terminal import err

__all__ = ["about", "looking", "main", "speed", "studies", "theory", "training", "tuning"]


def main() -> None:
    """Run the command; a mistake in the input is one line and exit code 2."""
    try:
        warnings.showwarning = show_warning
        keep_programs()
        sys.exit(app(standalone_mode=False) or 0)
    except InputError as error:
        fail(str(error))
    except (EnvironmentFailure, PartsFailed) as error:
        fail(str(error), code=1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the command-line parser raises has it
            raise
        fail(error.format_message())


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    """The library's own warnings in one line, without the line of code that they come from."""
    if issubclass(category, StormpgWarning):
        say(f"warning: {message}")
    else:
        err.print(warnings.formatwarning(message, category, filename, lineno, line), markup=False, highlight=False, end="")


def fail(message: str, code: int = 2) -> None:
    say(message)
    sys.exit(code)


def say(message: str) -> None:
    err.print(f"stormpg: {' '.join(message.split())}", highlight=False, markup=False, soft_wrap=True)
