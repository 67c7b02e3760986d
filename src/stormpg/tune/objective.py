"""The objectives of a search: a value for each seed, and the interquartile mean of these values."""

import math
from typing import NamedTuple

import numpy as np

from stormpg.errors import InputError, choose
from stormpg.runs.table import WINDOW, Columns, mean_return
from stormpg.statistics import curves, first_reach, iqm
from stormpg.studies.protocols import grid_for

KINDS = {
    "area": "IQM over seeds of the mean return over the whole run (the area under its curve)",
    "last": f"IQM over seeds of the mean return over the last {WINDOW} trajectories",
    "threshold": f"IQM over seeds of the trajectories until the mean return of the last {WINDOW} reaches the threshold",
}


class Objective(NamedTuple):
    """An objective: its kind, one of `KINDS`, and the threshold if it has one."""

    kind: str = "area"
    threshold: float | None = None

    @property
    def direction(self) -> str:
        return "minimize" if self.kind == "threshold" else "maximize"

    @property
    def words(self) -> str:
        """The objective in words, for reports."""
        named = KINDS[self.kind]
        return named if self.threshold is None else f"{named} {self.threshold:g} (the whole budget if never reached)"

    def of_seeds(self, columns: Columns, trajectories: int) -> np.ndarray:
        """The value of each seed of one setting. A seed that never reaches the threshold gets the whole budget."""
        if self.kind == "area":
            return mean_return(columns)
        if self.kind == "last":
            return mean_return(columns, WINDOW)
        assert self.threshold is not None, "checked by `objective`"
        grid = grid_for(trajectories)
        reached: np.ndarray = np.minimum(first_reach(curves(columns, grid, WINDOW), grid, self.threshold), trajectories)
        return reached

    def value(self, columns: Columns, trajectories: int) -> float:
        return float(iqm(self.of_seeds(columns, trajectories)))

    def on_the_way(self, columns: Columns) -> float:
        """The score of an unfinished run, larger is better: its mean return so far, or that of its last trajectories."""
        good = float(iqm(mean_return(columns, WINDOW if self.kind == "last" else None)))
        return good if math.isfinite(good) else -math.inf  # which can be sorted


def objective(kind: str, threshold: float | None) -> Objective:
    """The objective of this kind; InputError if kind and threshold do not fit together."""
    choose("objective", kind, KINDS)
    if (kind == "threshold") != (threshold is not None):
        given = "no --threshold" if threshold is None else f"--threshold {threshold:g}"
        raise InputError(f"the objective is {kind} with {given}; --objective threshold and --threshold go together.")
    if threshold is not None and not math.isfinite(threshold):
        raise InputError(f"threshold is {threshold}; expected a finite number.")
    return Objective(kind, threshold)
