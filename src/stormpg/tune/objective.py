"""What a search looks for: a number for each seed, and the interquartile mean of these."""

import math
from typing import NamedTuple

import numpy as np

from stormpg.errors import InputError, choose
from stormpg.runs.table import Columns, mean_return
from stormpg.studies.protocols import WINDOW, grid_for
from stormpg.studies.statistics import curves, first_reach, iqm

KINDS = {
    "area": "IQM over seeds of the mean return over the whole run (the area under its curve)",
    "last": f"IQM over seeds of the mean return over the last {WINDOW} trajectories",
    "threshold": f"IQM over seeds of the trajectories until the mean return of the last {WINDOW} is at the threshold",
}


class Objective(NamedTuple):
    kind: str = "area"
    threshold: float | None = None

    @property
    def direction(self) -> str:
        return "minimize" if self.kind == "threshold" else "maximize"

    @property
    def words(self) -> str:
        named = KINDS[self.kind]
        return named if self.threshold is None else f"{named} {self.threshold:g} (never: the budget)"

    def of_seeds(self, columns: Columns, trajectories: int) -> np.ndarray:
        """The number of each seed of one setting. A seed that never reaches the threshold counts with the whole budget."""
        if self.kind == "area":
            return mean_return(columns)
        if self.kind == "last":
            return mean_return(columns, WINDOW)
        assert self.threshold is not None, "checked where it is given"
        grid = grid_for(trajectories)
        return np.minimum(first_reach(curves(columns, grid, WINDOW), grid, self.threshold), trajectories)

    def value(self, columns: Columns, trajectories: int) -> float:
        return float(iqm(self.of_seeds(columns, trajectories)))

    def on_the_way(self, columns: Columns) -> float:
        """How good a run is that is not over, larger is better: the mean return so far, or of its last trajectories."""
        good = float(iqm(mean_return(columns, WINDOW if self.kind == "last" else None)))
        return good if math.isfinite(good) else -math.inf  # which can be put in order


def objective(kind: str, threshold: float | None) -> Objective:
    """As it is asked for; InputError where that makes no sense."""
    choose("objective", kind, KINDS)
    if (kind == "threshold") != (threshold is not None):
        given = "no --threshold" if threshold is None else f"--threshold {threshold:g}"
        raise InputError(f"the objective is {kind} and there is {given}; --objective threshold and --threshold go together.")
    if threshold is not None and not math.isfinite(threshold):
        raise InputError(f"threshold is {threshold}; expected a finite number.")
    return Objective(kind, threshold)
