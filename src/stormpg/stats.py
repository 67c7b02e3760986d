"""Statistics over seeds. The seed is the unit of replication: every interval is a bootstrap over seeds, by SciPy."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.95  # of every interval
RESAMPLES = 1000

Statistic = Callable[..., Any]  # of values and an axis, as np.mean


class Interval(NamedTuple):
    """An estimate with its percentile bootstrap interval, and what it was made from."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    draws: np.ndarray  # [resamples, ...] the estimate of each resample


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The interquartile mean: the mean of the middle half."""
    from scipy.stats import trim_mean

    return trim_mean(values, 0.25, axis=axis)


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


def interval(values: np.ndarray, statistic: Statistic = np.mean, seed: int = 0) -> Interval:
    """A statistic over seeds (the first axis) of numbers or curves. A lone seed has an interval of no width."""
    return stratified([values], statistic, seed)


def stratified(groups: Sequence[np.ndarray], statistic: Statistic = np.mean, seed: int = 0) -> Interval:
    """A statistic over all seeds of several groups (environments, say); a resample draws within each group."""
    from scipy.stats import bootstrap

    pooled = lambda *parts, axis: statistic(np.concatenate(parts, axis=axis), axis=axis)
    estimate = np.asarray(pooled(*groups, axis=0))
    if min(len(group) for group in groups) < 2:
        return Interval(estimate, estimate, estimate, estimate[None])
    drawn = bootstrap(
        tuple(groups),
        pooled,
        axis=0,
        n_resamples=RESAMPLES,
        batch=50,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(
        estimate,
        drawn.confidence_interval.low,
        drawn.confidence_interval.high,
        np.moveaxis(drawn.bootstrap_distribution, -1, 0),
    )


def percentiles(estimate: Any, draws: np.ndarray) -> Interval:
    """The interval of a number computed from each resample, infinite ones included; not a number where none is."""
    if np.isnan(draws).any():
        return Interval(np.asarray(estimate), np.asarray(np.nan), np.asarray(np.nan), draws)
    # Not interpolated: between a number and "never" there is nothing.
    low = np.quantile(draws, (1 - LEVEL) / 2, axis=0, method="lower")
    high = np.quantile(draws, (1 + LEVEL) / 2, axis=0, method="higher")
    return Interval(np.asarray(estimate), low, high, draws)


def first_reach(curve: np.ndarray, grid: np.ndarray, threshold: float) -> np.ndarray:
    """The first point of the grid where a curve (last axis) is at the threshold or above; infinite where it never is."""
    reached = curve >= threshold
    return np.where(reached.any(axis=-1), grid[reached.argmax(axis=-1)], np.inf)


def probability_of_improvement(x: np.ndarray, y: np.ndarray, seed: int = 0) -> Interval:
    """P(X > Y) + P(X = Y)/2 for a seed of each: Mann and Whitney's U over all pairs, resampled on both sides."""
    from scipy.stats import bootstrap, mannwhitneyu

    share = lambda x, y, axis=0: mannwhitneyu(x, y, axis=axis, method="asymptotic").statistic / (x.shape[axis] * y.shape[axis])
    estimate = np.asarray(share(x, y))
    if min(len(x), len(y)) < 2:
        return Interval(estimate, estimate, estimate, estimate[None])
    drawn = bootstrap(
        (x, y), share, n_resamples=RESAMPLES, confidence_level=LEVEL, method="percentile", rng=np.random.default_rng(seed)
    )
    return Interval(estimate, drawn.confidence_interval.low, drawn.confidence_interval.high, drawn.bootstrap_distribution)


def profile(values: np.ndarray, thresholds: np.ndarray) -> Interval:
    """The share of seeds above each threshold: a performance profile."""
    return interval((values[:, None] > thresholds).astype(float))
