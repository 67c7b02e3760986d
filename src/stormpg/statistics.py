"""Statistics over seeds. The seed is the unit of replication: every interval is a bootstrap over seeds, by SciPy.

Intervals are expanded percentile intervals (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3):
with few seeds plain percentile intervals are too narrow, so they are widened to match Student's t distribution.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.95  # of every interval
RESAMPLES = 1000
BATCH = 300_000  # number of values that are resampled at once

Statistic = Callable[..., Any]  # a function of values and an axis, such as np.mean


class Interval(NamedTuple):
    """An estimate with its expanded percentile bootstrap interval and its resamples."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    draws: np.ndarray  # [resamples, ...] the estimate of each resample


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The interquartile mean: the mean of the middle half."""
    from scipy.stats import trim_mean

    middle: np.ndarray = trim_mean(values, 0.25, axis=axis)
    return middle


def best_mean(count: int) -> Statistic:
    """The mean of the `count` best curves: those with the largest mean over the last axis. Each resample has its own best."""

    def statistic(values: np.ndarray, axis: int = 0) -> np.ndarray:
        score = np.expand_dims(values.mean(axis=-1), -1)
        size = min(count, values.shape[axis])
        chosen = np.take(np.argpartition(-score, size - 1, axis=axis), range(size), axis=axis)
        mean: np.ndarray = np.take_along_axis(values, chosen, axis).mean(axis=axis)
        return mean

    return statistic


def stream(*names: str) -> int:
    """The random seed for the resamples of a quantity, derived from its names. It is the same in every process."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big")


def expanded(*seeds: int) -> float:
    """The level of the percentiles such that the interval covers LEVEL. `seeds`: the size of each group that is resampled.

    A bootstrap over n seeds underestimates the variance by a factor of (n − 1)/n, and its percentiles are those of a normal
    distribution instead of Student's t with Σ (n − 1) degrees of freedom. The level corrects both.
    """
    from scipy.stats import norm, t

    several = [n for n in seeds if n > 1]
    if not several:
        return LEVEL
    least = min(several)
    reach = (least / (least - 1)) ** 0.5 * t.ppf((1 + LEVEL) / 2, sum(several) - len(several))
    return float(1 - 2 * norm.sf(reach))


def curves(columns: Mapping[str, np.ndarray], grid: np.ndarray, window: int = 1) -> np.ndarray:
    """The return of each run at each number of trajectories on the grid, [runs, grid].

    The value at x is the mean over the trajectories x − window + 1 .. x, where each has the mean return of its batch.
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
    """The interval of a statistic over seeds (the first axis) of numbers or curves. With one seed it has zero width.

    `seed`: the random seed of the resamples, see `stream`. Intervals that are compared with each other need different seeds.
    """
    return stratified([values], statistic, seed)


def stratified(groups: Sequence[np.ndarray], statistic: Statistic = np.mean, seed: int = 0) -> Interval:
    """The interval of a statistic over all seeds of several groups, such as environments, each resampled separately."""
    from scipy.stats import bootstrap

    estimate = np.asarray(statistic(np.concatenate(groups), axis=0))
    if min(len(group) for group in groups) < 2:
        return Interval(estimate, estimate, estimate, estimate[None])

    def resampled(*rows: np.ndarray, axis: int) -> np.ndarray:  # draws indices, so that whole seeds are resampled
        drawn = np.concatenate([group[chosen] for group, chosen in zip(groups, rows, strict=True)], axis=1)
        return np.moveaxis(np.asarray(statistic(drawn, axis=1)), 0, -1)

    drawn = bootstrap(
        tuple(np.arange(len(group)) for group in groups),
        resampled,
        n_resamples=RESAMPLES,
        batch=max(BATCH // sum(group.size for group in groups), 1),
        confidence_level=expanded(*map(len, groups)),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(
        estimate,
        drawn.confidence_interval.low,
        drawn.confidence_interval.high,
        np.moveaxis(drawn.bootstrap_distribution, -1, 0),
    )


def percentiles(estimate: Any, draws: np.ndarray, *seeds: int) -> Interval:
    """The interval of a number computed from each resample, which may be infinite. It is NaN if any resample is NaN.

    `seeds`: the size of each group used in the computation, for `expanded`. Without it, plain percentiles are used.
    """
    if np.isnan(draws).any():
        return Interval(np.asarray(estimate), np.asarray(np.nan), np.asarray(np.nan), draws)
    # Not interpolated: there is no value between a number and infinity ("never").
    level = expanded(*seeds)
    low = np.quantile(draws, (1 - level) / 2, axis=0, method="lower")
    high = np.quantile(draws, (1 + level) / 2, axis=0, method="higher")
    return Interval(np.asarray(estimate), low, high, draws)


def first_reach(curve: np.ndarray, grid: np.ndarray, threshold: Any) -> np.ndarray:
    """The first grid point at which a curve (last axis) reaches the threshold, or infinity if it never does.

    `threshold`: one for all curves, or one for each curve.
    """
    reached = curve >= np.asarray(threshold)[..., None]
    return np.where(reached.any(axis=-1), grid[reached.argmax(axis=-1)], np.inf)


def probability_of_improvement(x: np.ndarray, y: np.ndarray, seed: int = 0) -> Interval:
    """P(X > Y) + P(X = Y)/2 for one seed of each: the Mann–Whitney U over all pairs, with both samples resampled."""
    from scipy.stats import bootstrap, mannwhitneyu

    def share(x: np.ndarray, y: np.ndarray, axis: int = 0) -> Any:
        return mannwhitneyu(x, y, axis=axis, method="asymptotic").statistic / (x.shape[axis] * y.shape[axis])

    estimate = np.asarray(share(x, y))
    if min(len(x), len(y)) < 2:
        return Interval(estimate, estimate, estimate, estimate[None])
    drawn = bootstrap(
        (x, y),
        share,
        n_resamples=RESAMPLES,
        confidence_level=expanded(len(x), len(y)),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(estimate, drawn.confidence_interval.low, drawn.confidence_interval.high, drawn.bootstrap_distribution)


def profile(values: np.ndarray, thresholds: np.ndarray, seed: int = 0) -> Interval:
    """The share of seeds above each threshold: a performance profile."""
    return interval((values[:, None] > thresholds).astype(float), seed=seed)
