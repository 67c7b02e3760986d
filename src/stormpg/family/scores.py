"""Scores of the algorithms on each task, and what follows from them: gains over a reference, and the tolerance of settings.

The score of a run is its mean return over all trajectories (the area under its curve), as a share of the way from the mean
return of STORM-PG's first batches to the task's `best`. Every interval is over seeds, resampled within each task.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stormpg.family.cells import Runs
from stormpg.family.rows import STORM
from stormpg.family.tasks import Task
from stormpg.runs.table import Columns, mean_return
from stormpg.statistics import Interval, interval, iqm, percentiles, stratified, stream
from stormpg.studies.work_units import split_settings

NEAR = 0.1  # a configuration tolerates its settings if its score is at most this much below the best of its algorithm
LOWEST = -1.0  # how badly a diverged run ends has no meaning
GAINS, LOSES, OPEN = "gains", "loses", "no clear difference"

Cells = Mapping[tuple[str, str], Runs]  # by environment and algorithm


def first_return(columns: Columns) -> float:
    """The mean return of the first batch of each run."""
    return float(columns["return"][columns["iteration"] == 0].mean())


class Scale(NamedTuple):
    """The returns with score 0 and 1."""

    low: float
    high: float

    def __call__(self, returns: np.ndarray) -> np.ndarray:
        """The score of each return, at least LOWEST."""
        score = (returns - self.low) / (self.high - self.low)
        return np.asarray(np.where(np.isfinite(score), np.maximum(score, LOWEST), LOWEST))


def scale_of(task: Task, cells: Cells) -> Scale:
    return Scale(first_return(cells[task.env, STORM].given), task.best)


def run_scores(scale: Scale, columns: Columns) -> np.ndarray:
    """The score of each run."""
    return scale(mean_return(columns))


class Score(NamedTuple):
    """The interquartile mean of the scores of an algorithm on a task, under one protocol."""

    interval: Interval
    seeds: int


def scores(tasks: Sequence[Task], algorithms: Sequence[str], cells: Cells, part: str) -> dict[tuple[str, str], Score]:
    """The scores by environment and algorithm. `part`: "given" or "tuned"."""
    found = {}
    for task in tasks:
        scale = scale_of(task, cells)
        for name in algorithms:
            runs = run_scores(scale, getattr(cells[task.env, name], part))
            found[task.env, name] = Score(interval(runs, iqm, stream("family", part, task.env, name)), len(runs))
    return found


def mean_score(found: Mapping[tuple[str, str], Score], tasks: Sequence[Task], name: str) -> Interval:
    """The mean score over tasks."""
    every = [found[task.env, name] for task in tasks]
    estimate = np.mean([one.interval.estimate for one in every])
    draws = np.mean([one.interval.draws for one in every], axis=0)
    return percentiles(estimate, draws, *(one.seeds for one in every))


class Gain(NamedTuple):
    """By how much the score of an algorithm is larger than that of a reference."""

    interval: Interval

    @property
    def verdict(self) -> str:
        return GAINS if self.interval.low > 0 else LOSES if self.interval.high < 0 else OPEN


def gain(found: Mapping[tuple[str, str], Score], tasks: Sequence[Task], name: str, reference: str) -> Gain:
    """The mean over tasks of the difference of scores, resample by resample."""
    pairs = [(found[task.env, name], found[task.env, reference]) for task in tasks]
    estimate = np.mean([ours.interval.estimate - theirs.interval.estimate for ours, theirs in pairs])
    draws = np.mean([ours.interval.draws - theirs.interval.draws for ours, theirs in pairs], axis=0)
    return Gain(percentiles(estimate, draws, *(one.seeds for pair in pairs for one in pair)))


def tolerance(tasks: Sequence[Task], cells: Cells, name: str, configurations: Mapping[str, int]) -> Interval:
    """The share of the configurations of a tuning whose score is within NEAR of the best, with an interval over them.

    `configurations`: their number on each task.
    """
    groups = []
    for task in tasks:
        scale, count = scale_of(task, cells), configurations[task.env]
        tables = split_settings(cells[task.env, name].tuning, count)
        values = np.array([run_scores(scale, table).mean() for table in tables])
        groups.append((values >= values.max() - NEAR).astype(float))
    return stratified(groups, np.mean, stream("tolerance", name))
