"""Errors and warnings. An error says what was given, what was expected, and what to do."""

import contextlib
import difflib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np


class InputError(ValueError):
    """A mistake in what the user gave. The command prints its one line and exits with code 2."""


class StormpgWarning(UserWarning):
    """Something that is probably not intended, in one line. The command prints it and continues."""


class EnvironmentFailure(RuntimeError):
    """An environment outside JAX failed: its error, and the seed to reproduce it."""


class PartsFailed(RuntimeError):
    """Parts of a study failed repeatedly: which ones, with which settings, and why."""

    def __init__(self, words: str, failed: Mapping[str, str]) -> None:
        super().__init__(words)
        self.failed = failed  # reasons, by the name of the part


# The packages of the extras that many modules import; others say themselves what they need.
EXTRAS = {
    **dict.fromkeys(("typer", "rich", "tomli_w"), "cli"),
    **dict.fromkeys(("scipy", "matplotlib", "PIL"), "report"),
}


def extra_for(error: ModuleNotFoundError) -> str | None:
    """What to install for a missing package; None if it is not of an extra."""
    package = (error.name or "").partition(".")[0]
    return f'{package} is not installed: pip install "stormpg[{EXTRAS[package]}]".' if package in EXTRAS else None


def shown(value: Any, most: int = 80) -> str:
    """A value for an error message: its `repr`, without control characters, cut to one line."""
    text = repr(value[: most + 1] if isinstance(value, str | bytes | list | tuple) else value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


@contextlib.contextmanager
def legible(what: str) -> Iterator[None]:
    """Turn any error while stored content is interpreted into one InputError with the reason.

    `what`: the content, for the message. For files, whose content may be anything. The original error is kept as the cause.
    """
    try:
        yield
    except (InputError, EnvironmentFailure, PartsFailed):
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and extra_for(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{what} cannot be read: {reason[:200]}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an "unknown name" message: the most similar known name, if any, and all of them."""
    known = sorted(known)
    folded = {key.lower(): key for key in reversed(known)}
    close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)
    guess = f"did you mean {folded[close[0]]!r}? " if close else ""
    return f"{guess}Known: {', '.join(known)}"


def choose(kind: str, name: object, known: Iterable[str]) -> str:
    """Return `name` if it is known. Otherwise raise an InputError that suggests a similar one."""
    known = list(known)
    if not isinstance(name, str) or name not in known:
        raise InputError(f"unknown {kind} {shown(name)}: {nearest(str(name)[:80], known)}.")
    return name


MANY_INPUTS = 5000  # an observation with more numbers is taken for an image
LONG = 3600.0  # seconds of work that are probably not intended


Diverging = TypeVar("Diverging", bound=Any)  # a Result


def tell(text: str) -> None:
    """Issue a warning of one line."""
    warnings.warn(text, StormpgWarning, stacklevel=3)


def warn_pictures(name: str, size: int, bounds: tuple[Any, Any], normalise: bool) -> None:
    """Warn about raw pixels as inputs of an MLP."""
    if size > MANY_INPUTS:
        tell(
            f"{name} observes {size} numbers, as raw pictures have, and an MLP learns little from them: wrap it to give fewer, "
            "or give a policy on a network of your own, such as stormpg.categorical(network, actions)."
        )
    elif bounds == (0.0, 255.0) and not normalise:
        tell(f"{name} observes bytes from 0 to 255, which saturate an MLP's tanh units: take normalise=True, or wrap it.")


def warn_diverged(result: Diverging) -> Diverging:
    """Return the result, and warn if seeds diverged. A sweep does not warn: it is used to find out where runs diverge."""
    diverged = np.asarray(result.states.diverged)
    if len(result.algorithms) == 1 and diverged.any():
        tell(
            f"{diverged.sum()} of {diverged.size} seeds of {result.algorithms[0].name} on {result.env.name} diverged, and kept "
            "their last finite parameters from then on: lower eta, or raise B."
        )
    return result


class Forecast:
    """Warns once if the first batches show that all runs will take hours."""

    def __init__(self, name: str, runs: int) -> None:
        self.name, self.runs, self.batches = name, runs, 0

    def count(self, share: float, seconds: float) -> None:
        """Count a batch that is this share of a run's budget and took this time."""
        self.batches += 1
        whole = seconds / share * self.runs
        if self.batches == 2 and whole > LONG:  # the first one also opened the environments and compiled
            of = f"the {self.runs} seeds" if self.runs > 1 else "the episodes"
            tell(
                f"to play {of} of this run on {self.name} will take about {whole / 3600:.1f} hours: take fewer seeds or "
                "trajectories, asynchronous environments, or rollout_workers."
            )
