"""A cell: the runs of one algorithm on one task. With published settings, in tuning, and tuned on fresh seeds.

A cell is computed as a whole by one worker. Its three parts have the same number of runs, so that they share a compiled program
wherever their batches have the same size.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stormpg.errors import InputError
from stormpg.family.authors import settings_for
from stormpg.family.tasks import Task
from stormpg.runs.table import Columns
from stormpg.studies.equal_tuning import FRESH_SEED, TUNING_SEED, best_setting, spread_out
from stormpg.studies.work_units import Unit, compute_unit, drop_programs, keep_unit, read_unit


class Size(NamedTuple):
    """The size of a cell. Tuning tries `configurations` of the float settings with `tuning_seeds` seeds each."""

    seeds: int
    configurations: int
    tuning_seeds: int


class Cell(NamedTuple):
    algorithm: str
    task: Task
    size: Size

    @property
    def name(self) -> str:
        return f"{self.task.env}/{self.algorithm}"

    def unit(self, folder: str, settings: tuple[Mapping[str, Any], ...], seeds: int, first_seed: int = 0) -> Unit:
        task = self.task
        return Unit(folder, task.env, self.algorithm, settings, task.trajectories, seeds, first_seed, task.horizon)

    def given(self) -> Unit:
        """The published settings, or the defaults."""
        settings = settings_for(self.task.env, self.algorithm)
        return self.unit(f"runs/{self.name}", (settings,), self.size.seeds)

    def tuning(self) -> Unit:
        settings = tuple(spread_out(self.algorithm, self.size.configurations))
        return self.unit(f"tuning/{self.name}", settings, self.size.tuning_seeds, TUNING_SEED)

    def tuned(self, tuning: Columns) -> Unit:
        """The best configuration of the tuning on fresh seeds; the default if all diverged."""
        try:
            best, _ = best_setting([self.tuning()], [tuning])
        except InputError:
            best = {}
        return self.unit(f"runs/{self.name}-tuned", (best,), self.size.seeds, FRESH_SEED)


class Runs(NamedTuple):
    """The tables of a cell, and the settings of its tuned runs."""

    given: Columns
    tuning: Columns
    tuned: Columns
    chosen: Mapping[str, Any]


def compute(cell: Cell) -> dict[str, dict[str, bytes]]:
    """Run a cell. Returns the files of its units by folder."""
    # 16 short runs at a time do not fill a GPU, and every worker has a core: cells use the CPU, on machines with a GPU, too.
    with tempfile.TemporaryDirectory() as folder, jax.default_device(jax.devices("cpu")[0]):
        root, made = Path(folder), dict[str, dict[str, bytes]]()

        def run(unit: Unit) -> Columns:
            made[unit.folder] = compute_unit(unit)
            keep_unit(unit, root, made[unit.folder])
            return read_unit(unit, root)

        run(cell.given())
        run(cell.tuned(run(cell.tuning())))
    drop_programs()
    return made


def keep(cell: Cell, root: Path, made: Mapping[str, Mapping[str, bytes]]) -> None:
    """Store a cell. The tuned runs are written last: they show that it is complete."""
    units = [cell.given(), cell.tuning()]
    for unit in units:
        if not (root / unit.folder).exists():
            keep_unit(unit, root, made[unit.folder])
    last = cell.tuned(read_unit(cell.tuning(), root))
    keep_unit(last, root, made[last.folder])


def is_stored(cell: Cell, root: Path) -> bool:
    return (root / f"runs/{cell.name}-tuned").exists()


def read(cell: Cell, root: Path) -> Runs:
    """The runs of a stored cell."""
    tuning = read_unit(cell.tuning(), root)
    tuned = cell.tuned(tuning)
    return Runs(read_unit(cell.given(), root), tuning, read_unit(tuned, root), tuned.settings[0])
