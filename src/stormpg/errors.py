"""One way to say what is wrong with an input: what was given, what was expected, what to do."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class InputError(ValueError):
    """A mistake in what the user gave. The command prints its one line and exits with code 2."""


class StormpgWarning(UserWarning):
    """Something that is probably not meant, in one line. The command prints it and goes on."""


class EnvironmentFailure(RuntimeError):
    """An environment outside JAX broke: what it said, and the seed that repeats it."""


class PartsFailed(RuntimeError):
    """Some parts of a study kept failing: which, with which settings, and why."""

    def __init__(self, words: str, failed: Mapping[str, str]) -> None:
        super().__init__(words)
        self.failed = failed  # by the part's name


def shown(value: Any, most: int = 80) -> str:
    """A value in an error's words: as Python writes it, which has no control characters, and not longer than a line."""
    text = repr(value[: most + 1] if isinstance(value, str | bytes | list | tuple) else value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


@contextlib.contextmanager
def legible(what: str) -> Iterator[None]:
    """Whatever goes wrong while stored content is interpreted is one InputError: `what` it was, and the reason.

    For what is read from files, whose content may be anything. The error that was met stays as its cause.
    """
    try:
        yield
    except (InputError, EnvironmentFailure, PartsFailed):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{what} cannot be read: {reason[:200]}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an "unknown name" message: the nearest known name where there is one, and all of them."""
    known = sorted(known)
    folded = {key.lower(): key for key in reversed(known)}
    close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)
    guess = f"did you mean {folded[close[0]]!r}? " if close else ""
    return f"{guess}Known: {', '.join(known)}"


def choose(kind: str, name: object, known: Iterable[str]) -> str:
    """`name`, if it is one of the known names of this kind; otherwise an InputError with the nearest one."""
    known = list(known)
    if not isinstance(name, str) or name not in known:
        raise InputError(f"unknown {kind} {shown(name)}: {nearest(str(name)[:80], known)}.")
    return name
