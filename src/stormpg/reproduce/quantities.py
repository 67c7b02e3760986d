"""What the claims measure, from the curves of all algorithms under a protocol, with intervals."""

from collections.abc import Callable, Mapping

import numpy as np

from stormpg.studies.statistics import Interval, first_reach, percentiles
from stormpg.studies.verdicts import Algorithms

NEAR_MAXIMUM = 0.99  # of the largest return: the curve has reached the maximum
REASONABLE = 0.9  # of the way from the first return to STORM-PG's last one: a reasonable result
STABLE = 0.05  # of that way: a curve that falls no further below its end is stable

# What is measured is a function of all curves of a protocol, [..., grid] of each algorithm. It is computed from the curves as
# estimated and again in each resample, so that thresholds, which come from curves too, vary as these do.
Shapes = Mapping[str, np.ndarray]
Quantity = Callable[[Shapes, np.ndarray], np.ndarray]  # of the curves and their grid


def over_resamples(quantity: Quantity, *subjects: str) -> Callable[[Algorithms], Interval]:
    """The quantity with its interval. `subjects`: the algorithms that it is about, whose seeds say how wide that is."""

    def measure(algorithms: Algorithms) -> Interval:
        grid = algorithms[subjects[0]].grid
        estimate = quantity({name: curve.interval.estimate for name, curve in algorithms.items()}, grid)
        draws = quantity({name: curve.interval.draws for name, curve in algorithms.items()}, grid)
        return percentiles(estimate, draws, *(algorithms[name].seeds for name in subjects))

    return measure


def maximum_reached(name: str, y: Shapes, grid: np.ndarray) -> np.ndarray:
    """The trajectories until a curve is near the maximum, which is where the best curve of the protocol ends."""
    ends = np.broadcast_arrays(*(curve[..., -1] for curve in y.values()))
    return first_reach(y[name], grid, NEAR_MAXIMUM * np.max(ends, axis=0))


def reaches_maximum(name: str) -> Callable[[Algorithms], Interval]:
    return over_resamples(lambda y, grid: maximum_reached(name, y, grid), name)


def lead(fast: str, slow: str) -> Callable[[Algorithms], Interval]:
    """How many trajectories earlier `fast` reaches the maximum; not a number where neither does.

    In a resample in which neither does, none is earlier: 0. One such resample does not leave the others without an interval.
    """

    def earlier(y: Shapes, grid: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            found = maximum_reached(slow, y, grid) - maximum_reached(fast, y, grid)
        return np.where(np.isnan(found), 0.0, found) if found.ndim else found

    return over_resamples(earlier, fast, slow)


def ahead_at(x: int, ours: str, other: str) -> Callable[[Algorithms], Interval]:
    """The difference of two curves at a number of trajectories."""

    def ahead(y: Shapes, grid: np.ndarray) -> np.ndarray:
        position = int(np.abs(grid - x).argmin())
        return y[ours][..., position] - y[other][..., position]

    return over_resamples(ahead, ours, other)


def way(y: Shapes) -> tuple[np.ndarray, np.ndarray]:
    """The first return, a mean of all algorithms, and what STORM-PG gains from there to its end."""
    first = np.mean(np.broadcast_arrays(*(curve[..., 0] for curve in y.values())), axis=0)
    return first, y["storm-pg"][..., -1] - first


def if_gained(measure: Callable[[Algorithms], Interval]) -> Callable[[Algorithms], Interval]:
    """Not a number where STORM-PG has not certainly gained: there is no way to take a share of."""
    gain = over_resamples(lambda y, grid: way(y)[1], "storm-pg")

    def checked(algorithms: Algorithms) -> Interval:
        found = measure(algorithms)
        return found if gain(algorithms).low > 0 else Interval(*(np.asarray(np.nan),) * 3, found.draws)

    return checked


def share_of_gain(part: Quantity, *subjects: str) -> Callable[[Algorithms], Interval]:
    """A part of the return as a share of STORM-PG's gain; infinite in the few resamples in which it gains nothing."""

    def share(y: Shapes, grid: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return part(y, grid) / np.maximum(way(y)[1], np.finfo(float).tiny)

    return if_gained(over_resamples(share, *subjects))


def unsteadiness(x: int) -> Callable[[Algorithms], Interval]:
    """The deepest fall of STORM-PG's curve below its own end after x, as a share of what it has gained."""
    ours = "storm-pg"
    return share_of_gain(lambda y, grid: (y[ours][..., -1:] - y[ours][..., grid >= x]).max(axis=-1), ours)


def reasonable(name: str) -> Callable[[Algorithms], Interval]:
    """The trajectories until a curve has come most of STORM-PG's way."""

    def reached(y: Shapes, grid: np.ndarray) -> np.ndarray:
        first, gain = way(y)
        return first_reach(y[name], grid, first + REASONABLE * gain)

    return if_gained(over_resamples(reached, name))


def shortfall(name: str) -> Callable[[Algorithms], Interval]:
    """How far below STORM-PG's end another one ends, as a share of what STORM-PG has gained."""
    return share_of_gain(lambda y, grid: y["storm-pg"][..., -1] - y[name][..., -1], "storm-pg", name)
