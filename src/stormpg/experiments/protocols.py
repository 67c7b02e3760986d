"""Protocols: which seeds count, and which statistic is taken over them. They are shown side by side, never mixed."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stormpg import stats
from stormpg.columns import Columns

WINDOW = 50  # trajectories that a point of a curve is averaged over
POINTS = 200  # of a curve's grid
BEST_RUNS = 10


class Protocol(NamedTuple):
    short: str
    label: str
    note: str
    statistic: stats.Statistic
    best: int | None = None  # only that many seeds, those with the largest mean return of the whole run
    tuned: bool = False  # runs with tuned settings, on fresh seeds


PROTOCOLS = {
    "paper": Protocol(
        "(a) best",
        f"(a) {BEST_RUNS} best runs",
        f"The paper's protocol, which is a selection: of all seeds the {BEST_RUNS} with the largest mean return over the "
        "whole run; their mean, with an interval over these runs alone. It says how good luck can be, not what to expect.",
        np.mean,
        best=BEST_RUNS,
    ),
    "all": Protocol(
        "(b) IQM",
        "(b) all seeds, IQM",
        "Every seed, diverged ones included: interquartile mean, with a bootstrap interval over seeds.",
        stats.iqm,
    ),
    "mean": Protocol(
        "(b) mean", "(b) all seeds, mean", "Every seed, diverged ones included: mean, with a bootstrap interval.", np.mean
    ),
    "tuned": Protocol(
        "(c) tuned",
        "(c) equally tuned, IQM",
        "Every algorithm had the same number of configurations, compared on tuning seeds by the mean return of their whole "
        "runs; the best one ran again on fresh seeds, all of which are shown.",
        stats.iqm,
        tuned=True,
    ),
}
STATISTIC_NAMES = {np.mean: "mean", stats.iqm: "IQM"}


@dataclasses.dataclass(frozen=True)
class Curve:
    """An algorithm on an environment under a protocol."""

    runs: np.ndarray  # [seeds, grid], the seeds that count
    grid: np.ndarray
    interval: stats.Interval  # of the curve

    def at(self, x: int) -> stats.Interval:
        """The curve at a number of trajectories."""
        position = int(np.abs(self.grid - x).argmin())
        estimate, low, high, draws = self.interval
        return stats.Interval(estimate[position], low[position], high[position], draws[:, position])

    def reach(self, threshold: float) -> stats.Interval:
        """The trajectories until the curve is at the threshold."""
        reach = lambda curve: stats.first_reach(curve, self.grid, threshold)
        return stats.percentiles(reach(self.interval.estimate), reach(self.interval.draws))

    @property
    def final(self) -> np.ndarray:
        """Each seed's return at the end."""
        return self.runs[:, -1]


def grid_for(trajectories: int) -> np.ndarray:
    """The points of a curve, evenly spaced; the last is the budget."""
    step = max(trajectories // POINTS, 1)
    return np.arange(trajectories, 0, -step)[::-1]


def curve(columns: Columns, trajectories: int, protocol: Protocol) -> Curve:
    """A curve of a table of one setting."""
    grid = grid_for(trajectories)
    runs = stats.curves(columns, grid, WINDOW)
    if protocol.best is not None:
        runs = runs[np.argsort(-runs.mean(axis=1), kind="stable")[: protocol.best]]
    return Curve(runs, grid, stats.interval(runs, protocol.statistic))


Curves = Mapping[str, Mapping[str, Curve]]  # of an environment: protocol, algorithm


def curves_of(fixed: Mapping[str, Columns], tuned: Mapping[str, Columns], trajectories: int) -> Curves:
    """All protocols for which there are runs."""
    return {
        name: {a: curve(columns, trajectories, protocol) for a, columns in tables.items()}
        for name, protocol in PROTOCOLS.items()
        if (tables := tuned if protocol.tuned else fixed)
    }
