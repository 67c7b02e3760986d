"""Protocols: which seeds count, and which statistic is taken over them. They are shown side by side, never mixed."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stormpg.runs.table import Columns
from stormpg.studies import statistics

WINDOW = 50  # trajectories that a point of a curve is averaged over
POINTS = 200  # of a curve's grid
BEST_RUNS = 10


class Protocol(NamedTuple):
    short: str
    label: str
    note: str
    statistic: statistics.Statistic
    name: str  # of the statistic
    best: int | None = None  # the statistic is of that many seeds only, those with the largest mean return of the whole run
    tuned: bool = False  # runs with tuned settings, on fresh seeds


PROTOCOLS = {
    "paper": Protocol(
        "(a) best",
        f"(a) {BEST_RUNS} best runs",
        f"The paper's protocol, which is a selection: of all seeds the {BEST_RUNS} with the largest mean return over the "
        "whole run, and their mean. The interval is over all seeds: each resample chooses its own best. It says how good luck "
        "can be, not what to expect.",
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
    """An algorithm on an environment under a protocol."""

    runs: np.ndarray  # [runs, grid], those that are shown: all seeds, or the best of them
    grid: np.ndarray
    interval: statistics.Interval  # of the curve
    seeds: int  # that a resample draws from


def grid_for(trajectories: int) -> np.ndarray:
    """The points of a curve, evenly spaced; the last is the budget."""
    step = max(trajectories // POINTS, 1)
    return np.arange(trajectories, 0, -step)[::-1]


def curve(runs: np.ndarray, grid: np.ndarray, protocol: Protocol, *names: str) -> Curve:
    """The curve of all seeds, [seeds, grid]. Its resamples are independent of those with other names."""
    found = statistics.interval(runs, protocol.statistic, statistics.stream(protocol.short, *names))
    shown = runs if protocol.best is None else runs[np.argsort(-runs.mean(axis=1), kind="stable")[: protocol.best]]
    return Curve(shown, grid, found, len(runs))


Curves = Mapping[str, Mapping[str, Curve]]  # of an environment: protocol, algorithm


def curves_of(
    env: str,
    fixed: Mapping[str, Columns],
    trajectories: int,
    tuned: Mapping[str, Columns] | None = None,
    tuned_trajectories: int = 0,
) -> Curves:
    """All protocols for which there are runs; tuned ones have a budget of their own."""

    def runs_of(tables: Mapping[str, Columns], grid: np.ndarray) -> dict[str, np.ndarray]:
        return {name: statistics.curves(columns, grid, WINDOW) for name, columns in tables.items()}

    grids = grid_for(trajectories), grid_for(tuned_trajectories)
    runs = runs_of(fixed, grids[False]), runs_of(tuned or {}, grids[True])
    return {
        name: {a: curve(one, grids[protocol.tuned], protocol, env, a) for a, one in runs[protocol.tuned].items()}
        for name, protocol in PROTOCOLS.items()
        if runs[protocol.tuned]
    }
