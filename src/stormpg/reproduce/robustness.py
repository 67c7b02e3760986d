"""Sensitivity to the settings: grids of η × (α or m) and of η × B for each variance-reduced method."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stormpg import statistics
from stormpg.paper import settings_for
from stormpg.runs.table import WINDOW, Columns
from stormpg.studies.protocols import grid_for
from stormpg.studies.work_units import Unit, split_settings

RATES = tuple(round(float(rate), 5) for rate in np.geomspace(0.001, 0.1, 7))
MOMENTA = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
LOOPS = (1, 3, 5, 10, 20)
BATCHES = (2, 5, 10, 20)
METHODS = ("svrpg", "srvr-pg", "storm-pg")
NEAR_BEST = 0.05  # a setting is good if it ends within 5 % of the best of its grid


@dataclasses.dataclass(frozen=True)
class Grid:
    """A method's settings over η (columns) and another setting (rows)."""

    env: str
    algorithm: str
    row: str  # the other setting
    rows: Sequence[float]
    trajectories: int
    seeds: int
    common: Mapping[str, Any]

    def units(self) -> list[Unit]:
        """The runs of the grid: one unit for α, which is traced, and one per row for settings that change array shapes."""
        base = {**settings_for(self.env, self.algorithm), **self.common}
        cells = [tuple({**base, self.row: value, "eta": eta} for eta in RATES) for value in self.rows]
        batches = {"all": sum(cells, ())} if self.row == "alpha" else dict(zip(map(str, self.rows), cells, strict=True))
        return [
            Unit(
                f"robustness/{self.env}/{self.algorithm}/{self.row}-{name}",
                self.env,
                self.algorithm,
                settings,
                self.trajectories,
                self.seeds,
            )
            for name, settings in batches.items()
        ]

    def curves(self, tables: Sequence[Columns]) -> np.ndarray:
        """Return the whole curves of every cell, [rows, rates, seeds, grid]."""
        grid = grid_for(self.trajectories)
        runs = [
            statistics.curves(one, grid, WINDOW)
            for table, unit in zip(tables, self.units(), strict=True)
            for one in split_settings(table, len(unit.settings))
        ]
        return np.reshape(runs, (len(self.rows), len(RATES), self.seeds, len(grid)))


def grids(env: str, algorithm: str, trajectories: int, seeds: int, common: Mapping[str, Any]) -> list[Grid]:
    """The two grids of a method."""
    rows: dict[str, Sequence[float]] = {"alpha": MOMENTA, "m": LOOPS, "B": BATCHES}
    return [
        Grid(env, algorithm, row, rows[row], trajectories, seeds, common)
        for row in ("alpha" if algorithm == "storm-pg" else "m", "B")
    ]


def good_share(curves: np.ndarray, *names: str) -> statistics.Interval:
    """The share of cells whose final IQM is within NEAR_BEST of the best cell's. A resample draws the same seeds for all cells.

    `names` identify the grid. Its resamples are independent of those of other grids.
    """
    final = np.moveaxis(curves[..., -1], -1, 0).reshape(curves.shape[2], -1)  # [seeds, cells]
    drawn = statistics.interval(final, statistics.iqm, statistics.stream("robustness", *names))

    def share(cells: np.ndarray) -> np.ndarray:
        best = cells.max(axis=-1, keepdims=True)
        found: np.ndarray = (cells >= best - NEAR_BEST * np.abs(best)).mean(axis=-1)
        return found

    return statistics.percentiles(share(drawn.estimate), share(drawn.draws), len(final))


def heatmap(grid: Grid, curves: np.ndarray, share: statistics.Interval, threshold: float) -> dict[str, Any]:
    """Return the heat map of a grid, as the report shows it."""
    across = statistics.iqm(curves, axis=2)  # [rows, rates, grid]
    return {
        "env": grid.env,
        "algorithm": grid.algorithm,
        "title": f"{grid.algorithm}: eta × {grid.row}",
        "x_name": "eta",
        "x": list(RATES),
        "y_name": grid.row,
        "y": list(grid.rows),
        "final": across[..., -1],
        "reach": statistics.first_reach(across, grid_for(grid.trajectories), threshold),
        "share": float(share.estimate),
        "share_interval": [float(share.low), float(share.high)],
        "threshold": threshold,
        "seeds": grid.seeds,
        "trajectories": grid.trajectories,
    }
