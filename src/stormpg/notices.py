"""Warnings of what is probably not meant, each in one line. They are `StormpgWarning`s, which Python's filters can silence."""

import warnings
from typing import Any

import numpy as np

from stormpg.errors import StormpgWarning

MANY_INPUTS = 5000  # more numbers than these in an observation are taken for a picture
LONG = 3600.0  # seconds of work that one may not have meant


def tell(text: str) -> None:
    """Warn with one line."""
    warnings.warn(text, StormpgWarning, stacklevel=3)


def warn_pictures(name: str, size: int, bounds: tuple[Any, Any], normalise: bool) -> None:
    """Of raw pixels as the inputs of an MLP."""
    if size > MANY_INPUTS:
        tell(
            f"{name} observes {size} numbers, as raw pictures have, and an MLP learns little from them: wrap it to give fewer, "
            "or give a policy on a network of your own, such as stormpg.categorical(network, actions)."
        )
    elif bounds == (0.0, 255.0) and not normalise:
        tell(f"{name} observes bytes from 0 to 255, which saturate an MLP's tanh units: take normalise=True, or wrap it.")


def warn_diverged(result: Any) -> Any:
    """The result, with a warning where seeds of it diverged; not for a sweep, which is there to find out where."""
    diverged = np.asarray(result.states.diverged)
    if len(result.algorithms) == 1 and diverged.any():
        tell(
            f"{diverged.sum()} of {diverged.size} seeds of {result.algorithms[0].name} on {result.env.name} diverged, and kept "
            "their last finite parameters from then on: lower eta, or raise B."
        )
    return result


class Forecast:
    """Warns once where the first batches say that all runs will take hours."""

    def __init__(self, name: str, runs: int) -> None:
        self.name, self.runs, self.batches = name, runs, 0

    def count(self, share: float, seconds: float) -> None:
        """A batch, which is this share of the budget of a run, took this time."""
        self.batches += 1
        whole = seconds / share * self.runs
        if self.batches == 2 and whole > LONG:  # the first one has opened the environments, and compiled
            of = f"the {self.runs} seeds" if self.runs > 1 else "the episodes"
            tell(
                f"to play {of} of this run on {self.name} will take about {whole / 3600:.1f} hours: take fewer seeds or "
                "trajectories, asynchronous environments, or rollout_workers."
            )
