"""Statistics over seeds. The seed is the unit of replication: every interval is a bootstrap over seeds."""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """An estimate with its bootstrap interval, for each point of a grid."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curves(columns: Mapping[str, np.ndarray], grid: np.ndarray, window: int = 1) -> np.ndarray:
    """The return of each run at each number of trajectories on the grid, [runs, grid].

    At x it is the mean over the trajectories x − window + 1 .. x, each counted with the mean return of its batch.
    """
    starts = np.append(np.nonzero(columns["iteration"] == 0)[0], len(columns["iteration"]))
    lines = []
    for first, last in itertools.pairwise(starts):
        ends, value = columns["trajectories"][first:last], columns["return"][first:last].astype(float)
        total = np.concatenate(([0.0], np.cumsum(np.diff(ends, prepend=0) * value)))
        ends = np.concatenate(([0], ends))
        x = np.minimum(grid, ends[-1])
        before = np.maximum(x - window, 0)
        lines.append((np.interp(x, ends, total) - np.interp(before, ends, total)) / np.maximum(x - before, 1))
    return np.array(lines)


def mean_interval(values: np.ndarray, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The mean over runs (first axis), with a percentile bootstrap interval."""
    from scipy.stats import bootstrap

    if len(values) < 2:
        return Interval(values.mean(axis=0), values.mean(axis=0), values.mean(axis=0))
    drawn = bootstrap(
        (values,),
        np.mean,
        axis=0,
        confidence_level=level,
        n_resamples=resamples,
        batch=100,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(values.mean(axis=0), drawn.confidence_interval.low, drawn.confidence_interval.high)


def first_reach(curve: np.ndarray, grid: np.ndarray, threshold: float) -> int | None:
    """The first point of the grid where the curve is at the threshold or above; None where it never is."""
    reached = np.nonzero(curve >= threshold)[0]
    return int(grid[reached[0]]) if len(reached) else None
