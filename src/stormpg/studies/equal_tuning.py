"""Equal tuning: every algorithm gets the same number of configurations, seeds and trajectories.

A configuration consists of a shape (batch sizes, m), which needs its own compiled program, and float settings, which are
batched. The best configuration is the one with the largest mean return over complete runs on the tuning seeds. It is then run
again on fresh seeds with the same number of trajectories, so tuning and reporting use runs of the same length.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stormpg.algorithms.registry import float_ranges
from stormpg.algorithms.settings import Range
from stormpg.errors import InputError
from stormpg.runs.table import Columns, mean_return
from stormpg.studies.work_units import Unit, split_settings

TUNING_SEED = 1000  # the first seed for tuning
FRESH_SEED = 2000  # the first seed for the reported runs
PLAIN = ("reinforce", "pgt", "gpomdp")
PAPER = (*PLAIN, "svrpo", "svrpg", "srvr-pg", "storm-pg")


class Space(NamedTuple):
    """The configurations of an algorithm: every shape combined with all float settings."""

    shapes: Sequence[Mapping[str, int]]
    floats: Sequence[Mapping[str, float]]

    def __len__(self) -> int:
        return len(self.shapes) * len(self.floats)


def space_for(algorithm: str, points: int) -> Space:
    """The search space, with 3 · `points` configurations: three shapes and `points` rates; for STORM-PG two shapes, rates, α.

    Other algorithms have one shape, with configurations that fill the ranges of all their float settings. `points` must be a
    multiple of 4, so that all algorithms have the same number of configurations.
    """
    rates = [round(float(rate), 6) for rate in np.geomspace(0.001, 0.1, points)]
    plain = ({"S0": 5}, {"S0": 10}, {"S0": 25})
    double = ({"S0": 25, "B": 10, "m": 3}, {"S0": 10, "B": 5, "m": 3}, {"S0": 10, "B": 5, "m": 10})
    if algorithm == "storm-pg":
        alphas = (0.3, 0.6, 0.9) if points >= 8 else (0.6, 0.9)
        half = [round(float(rate), 6) for rate in np.geomspace(0.001, 0.1, points * 3 // (2 * len(alphas)))]
        return Space(
            ({"S0": 10, "B": 5}, {"S0": 10, "B": 10}), [{"eta": e, "alpha": a} for e, a in itertools.product(half, alphas)]
        )
    if algorithm == "svrpo":
        return Space(double, [{"delta": delta} for delta in rates])
    if algorithm in PAPER:
        return Space(plain if algorithm in PLAIN else double, [{"eta": eta} for eta in rates])
    return Space(({},), spread_out(algorithm, 3 * points))


def spread_out(algorithm: str, count: int) -> list[dict[str, float]]:
    """The default of an algorithm (an empty setting) and `count` − 1 points that fill the ranges of its float settings evenly.

    The points are those of a scrambled Halton sequence. They are the same on every machine.
    """
    from scipy.stats import qmc

    ranges = float_ranges(algorithm)
    points = qmc.Halton(len(ranges), rng=np.random.default_rng(0)).random(count - 1)

    def at(share: float, values: Range) -> float:
        low, high, log = values
        return float(f"{low * (high / low) ** share if log else low + share * (high - low):.4g}")

    return [{}, *({name: at(x, values) for x, (name, values) in zip(p, ranges.items(), strict=True)} for p in points)]


def tuning_units(
    env: str, algorithm: str, points: int, trajectories: int, seeds: int, common: Mapping[str, Any], horizon: int | None = None
) -> list[Unit]:
    """The tuning units of an algorithm, one for each shape."""
    space = space_for(algorithm, points)
    return [
        Unit(
            f"tuning/{env}/{algorithm}/{'-'.join(f'{k}{v}' for k, v in shape.items()) or 'default'}",
            env,
            algorithm,
            tuple({**common, **shape, **floats} for floats in space.floats),
            trajectories,
            seeds,
            TUNING_SEED,
            horizon,
        )
        for shape in space.shapes
    ]


def best_setting(units: Sequence[Unit], tables: Sequence[Columns]) -> tuple[Mapping[str, Any], list[float]]:
    """The setting with the largest mean area over its seeds, and the areas of all settings, unit by unit.

    A setting whose area is not finite (a seed diverged) is never the best.
    """
    settings = [s for unit in units for s in unit.settings]
    areas = [
        float(mean_return(one).mean())
        for unit, table in zip(units, tables, strict=True)
        for one in split_settings(table, len(unit.settings))
    ]
    finite = np.where(np.isfinite(areas), areas, -np.inf)
    if not np.isfinite(finite).any():
        raise InputError(
            f"none of the {len(areas)} configurations of {units[0].algorithm} on {units[0].env} has a finite mean return: "
            "expected at least one that does not diverge. Change the trajectories or seeds, or leave out the algorithm."
        )
    return settings[int(np.argmax(finite))], areas
