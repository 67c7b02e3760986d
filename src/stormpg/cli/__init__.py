"""The command `stormpg`. Its modules register their commands when imported: about (list, doctor), training, render, studies,
report, tuning, bench and theory.
"""

import signal
import sys
import warnings
from typing import Any

from stormpg.cli import about, bench, render, report, studies, theory, training, tuning
from stormpg.cli.base import app
from stormpg.cli.help import Interrupted
from stormpg.errors import EnvironmentFailure, InputError, PartsFailed, StormpgWarning
from stormpg.machine.stopping import Terminated, terminate
from stormpg.machine.xla import ask_fast_loops, keep_programs
from stormpg.report.terminal import err, out

__all__ = ["about", "bench", "main", "render", "report", "studies", "theory", "training", "tuning"]


def main() -> None:
    """Run the command. A mistake in the input prints one line and exits with code 2; so does a missing extra, in `__main__`."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        warnings.showwarning = show_warning
        ask_fast_loops()
        keep_programs()
        sys.exit(app(prog_name="stormpg", standalone_mode=False) or 0)
    except InputError as error:
        fail(str(error))
    except (EnvironmentFailure, PartsFailed) as error:
        fail(" ".join((str(error), *getattr(error, "__notes__", ()))), code=1)
    except Interrupted as interrupted:
        stopped(interrupted.error)
    except (KeyboardInterrupt, Terminated) as error:
        stopped(error)
    except OSError as error:  # a name that is too long, a full disk, a folder without read permission
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}. Give another file or folder, or free some disk space.")
    except Exception as error:
        if not hasattr(error, "format_message"):  # only errors of the command-line parser have it
            raise
        fail(error.format_message())
    finally:
        signal.signal(signal.SIGTERM, before)


def stopped(error: BaseException) -> None:
    """Print what was done before the signal and how to resume, and exit."""
    result = getattr(error, "result", None)
    done = "" if result is None else f" at {int(result.states.trajectories.min())} trajectories"
    notes = getattr(error, "__notes__", ()) or ("Nothing was saved, because --out was not given.",) * (result is not None)
    out.print(f"Stopped{done}. {' '.join(notes)}".strip(), soft_wrap=True)
    sys.exit(128 + (signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM))


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    """Print the library's own warnings in one line, without the source line."""
    if issubclass(category, StormpgWarning):
        say(f"warning: {message}")
    else:
        err.print(warnings.formatwarning(message, category, filename, lineno, line), end="")


def fail(message: str, code: int = 2) -> None:
    """Print an error in one line, and exit."""
    say(message)
    sys.exit(code)


def say(message: str) -> None:
    """Print one line on standard error."""
    err.print(f"stormpg: {' '.join(message.split())}", soft_wrap=True)
