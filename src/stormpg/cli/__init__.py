"""The command `stormpg`. Its parts register themselves: about (list, doctor), training, looking (render), studies, tuning,
speed and theory.
"""

import sys

from stormpg.cli import about, looking, speed, studies, theory, training, tuning
from stormpg.cli.base import app
from stormpg.compiler import keep_programs
from stormpg.errors import EnvironmentFailure, InputError, PartsFailed
from stormpg.terminal import err

__all__ = ["about", "looking", "main", "speed", "studies", "theory", "training", "tuning"]


def main() -> None:
    """Run the command; a mistake in the input is one line and exit code 2."""
    try:
        keep_programs()
        sys.exit(app(standalone_mode=False) or 0)
    except InputError as error:
        fail(str(error))
    except (EnvironmentFailure, PartsFailed) as error:
        fail(str(error), code=1)
    except OSError as error:  # a name that is too long, a full disk, a folder that may not be read
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}. Give another file or folder, or make room.")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the command-line parser raises has it
            raise
        fail(error.format_message())


def fail(message: str, code: int = 2) -> None:
    err.print(f"stormpg: {' '.join(message.split())}", soft_wrap=True)
    sys.exit(code)
