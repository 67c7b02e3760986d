"""Protocols: which seeds are used, and which statistic is computed over them. They are shown side by side, never mixed."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stormpg import statistics
from stormpg.runs.table import WINDOW, Columns

POINTS = 200  # approximate number of points of a curve
BEST_RUNS = 10


class Protocol(NamedTuple):
    """A choice of seeds and a statistic."""

    short: str
    label: str
    note: str
    statistic: statistics.Statistic
    name: str  # of the statistic
    best: int | None = None  # use only this number of seeds, those with the largest mean return over the whole run
    tuned: bool = False  # runs with tuned settings, on fresh seeds

    def words(self, seeds: int) -> dict[str, str]:
        """What a report of this number of seeds says about it: with few seeds, the best ones are all of them."""
        if self.best is None or seeds > self.best:
            return {"short": self.short, "label": self.label, "note": self.note}
        note = (
            f"The paper's protocol is the mean of the {self.best} best runs: with {seeds} seeds these are all, as in (b), mean."
        )
        return {"short": "(a) all", "label": f"(a) all {seeds} runs", "note": note}


PROTOCOLS = {
    "paper": Protocol(
        "(a) best",
        f"(a) {BEST_RUNS} best runs",
        f"The paper's protocol, which is a selection: of all seeds the {BEST_RUNS} with the largest mean return over the "
        "whole run, and their mean. The interval is over all seeds: each resample chooses its own best. It shows what the "
        "luckiest seeds achieve, not what to expect.",
        statistics.best_mean(BEST_RUNS),
        "mean",
        best=BEST_RUNS,
    ),
    "all": Protocol(
        "(b) IQM",
        "(b) all seeds, IQM",
        "Every seed, diverged ones included: interquartile mean, with a bootstrap interval over seeds.",
        statistics.iqm,
        "IQM",
    ),
    "mean": Protocol(
        "(b) mean",
        "(b) all seeds, mean",
        "Every seed, diverged ones included: mean, with a bootstrap interval over seeds.",
        np.mean,
        "mean",
    ),
    "tuned": Protocol(
        "(c) tuned",
        "(c) equally tuned, IQM",
        "Every algorithm had the same number of configurations, compared on tuning seeds by the mean return of their whole "
        "runs; the best one ran again on fresh seeds with the same budget, and all of these are shown.",
        statistics.iqm,
        "IQM",
        tuned=True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """The curve of an algorithm on an environment under a protocol."""

    runs: np.ndarray  # [runs, grid], the runs that are shown: all seeds, or the best ones
    grid: np.ndarray
    interval: statistics.Interval  # of the curve
    seeds: int  # number of seeds that a resample is drawn from
    rows: np.ndarray  # the places of `runs` among all seeds


def grid_for(trajectories: int) -> np.ndarray:
    """The evenly spaced points of a curve. The last point is the budget."""
    step = max(trajectories // POINTS, 1)
    return np.arange(trajectories, 0, -step)[::-1]


def curve(runs: np.ndarray, grid: np.ndarray, protocol: Protocol, *names: str) -> Curve:
    """The curve for the runs of all seeds, [seeds, grid]. Resamples are independent of those for other `names`."""
    found = statistics.interval(runs, protocol.statistic, statistics.stream(protocol.short, *names))
    order = np.arange(len(runs)) if protocol.best is None else np.argsort(-runs.mean(axis=1), kind="stable")
    rows = order[: protocol.best]
    return Curve(runs[rows], grid, found, len(runs), rows)


Curves = Mapping[str, Mapping[str, Curve]]  # of an environment: protocol, algorithm


def curves_of(
    env: str,
    fixed: Mapping[str, Columns],
    trajectories: int,
    tuned: Mapping[str, Columns] | None = None,
    tuned_trajectories: int = 0,
) -> Curves:
    """The curves for all protocols that have runs. Tuned runs have their own budget."""

    def runs_of(tables: Mapping[str, Columns], grid: np.ndarray) -> dict[str, np.ndarray]:
        return {name: statistics.curves(columns, grid, WINDOW) for name, columns in tables.items()}

    grids = grid_for(trajectories), grid_for(tuned_trajectories)
    runs = runs_of(fixed, grids[False]), runs_of(tuned or {}, grids[True])
    return {
        name: {a: curve(one, grids[protocol.tuned], protocol, env, a) for a, one in runs[protocol.tuned].items()}
        for name, protocol in PROTOCOLS.items()
        if runs[protocol.tuned]
    }
