"""The quantities that the claims are about, from the curves of all algorithms under a protocol, with intervals."""

from collections.abc import Callable

import numpy as np

from stormpg.statistics import Interval, first_reach
from stormpg.studies.verdicts import Algorithms, Quantity, Shapes, over_resamples

NEAR_MAXIMUM = 0.99  # share of the largest return at which a curve has reached the maximum
REASONABLE = 0.9  # share of STORM-PG's gain, from the first return to its last, that is a reasonable result
STABLE = 0.05  # share of that gain by which a stable curve may fall below its end


def maximum_reached(name: str, y: Shapes, grid: np.ndarray) -> np.ndarray:
    """The trajectories until a curve is near the maximum, which is the end of the best curve of the protocol."""
    ends = np.broadcast_arrays(*(curve[..., -1] for curve in y.values()))
    return first_reach(y[name], grid, NEAR_MAXIMUM * np.max(ends, axis=0))


def reaches_maximum(name: str) -> Callable[[Algorithms], Interval]:
    """The trajectories until an algorithm reaches the maximum."""
    return over_resamples(lambda y, grid: maximum_reached(name, y, grid), name)


def lead(fast: str, slow: str) -> Callable[[Algorithms], Interval]:
    """How many trajectories earlier `fast` reaches the maximum than `slow`; NaN if neither reaches it.

    A resample in which neither reaches it counts as 0, so that a single one does not make the interval undefined.
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


def gain_of(y: Shapes) -> tuple[np.ndarray, np.ndarray]:
    """Return the first return, as a mean over all algorithms, and STORM-PG's gain from there to its end."""
    first = np.mean(np.broadcast_arrays(*(curve[..., 0] for curve in y.values())), axis=0)
    return first, y["storm-pg"][..., -1] - first


def if_gained(measure: Callable[[Algorithms], Interval]) -> Callable[[Algorithms], Interval]:
    """Return NaN if the interval of STORM-PG's gain includes 0, because a share of the gain is then undefined."""
    gain = over_resamples(lambda y, grid: gain_of(y)[1], "storm-pg")

    def checked(algorithms: Algorithms) -> Interval:
        found = measure(algorithms)
        return found if gain(algorithms).low > 0 else Interval(*(np.asarray(np.nan),) * 3, found.draws)

    return checked


def share_of_gain(part: Quantity, *subjects: str) -> Callable[[Algorithms], Interval]:
    """A part of the return as a share of STORM-PG's gain; very large or infinite in resamples without a gain."""

    def share(y: Shapes, grid: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            found: np.ndarray = part(y, grid) / np.maximum(gain_of(y)[1], np.finfo(float).tiny)
        return found

    return if_gained(over_resamples(share, *subjects))


def unsteadiness(x: int) -> Callable[[Algorithms], Interval]:
    """The deepest fall of STORM-PG's curve below its own end after x, as a share of its gain."""
    ours = "storm-pg"
    return share_of_gain(lambda y, grid: (y[ours][..., -1:] - y[ours][..., grid >= x]).max(axis=-1), ours)


def reasonable(name: str) -> Callable[[Algorithms], Interval]:
    """The trajectories until a curve has reached the share REASONABLE of STORM-PG's gain."""

    def reached(y: Shapes, grid: np.ndarray) -> np.ndarray:
        first, gain = gain_of(y)
        return first_reach(y[name], grid, first + REASONABLE * gain)

    return if_gained(over_resamples(reached, name))


def shortfall(name: str) -> Callable[[Algorithms], Interval]:
    """How far below STORM-PG another algorithm ends, as a share of STORM-PG's gain."""
    return share_of_gain(lambda y, grid: y["storm-pg"][..., -1] - y[name][..., -1], "storm-pg", name)
