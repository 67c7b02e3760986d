"""Units of work: one compiled batch of settings and seeds, each in a folder of its own.

A unit that is done is read back; one that is missing is run. A folder appears under its name only when it is whole, so
an experiment that was interrupted goes on with what is missing.
"""

import contextlib
import ctypes
import dataclasses
import gc
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stormpg import files, store
from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.envs import make
from stormpg.errors import InputError
from stormpg.result import Progress
from stormpg.train import check_budget, train

Columns = Mapping[str, np.ndarray]
Report = Callable[[str, int, int], None]  # a unit's folder, units done, units in all

# A compiled program takes some 30 MB and many of the mappings that Linux allows a process: after a group they are dropped.
GROUP = 8 if jax.default_backend() == "cpu" else 1000
# Compiling keeps one core busy, so the next unit compiles while this one runs; a GPU's host has more cores.
AT_ONCE = 2 if jax.default_backend() == "cpu" else 12


@dataclasses.dataclass(frozen=True)
class Unit:
    """What to train, and where it is kept below the experiment's folder. Its settings differ in floats only."""

    folder: str
    env: str
    algorithm: str
    settings: tuple[Mapping[str, Any], ...]
    trajectories: int
    seeds: int
    first_seed: int = 0
    horizon: int | None = None

    def algorithms(self) -> list[Algorithm]:
        return [make_algorithm(self.algorithm, **settings) for settings in self.settings]

    def check(self) -> None:
        """InputError where it cannot be run as it is asked for."""
        make(self.env)
        for algorithm in self.algorithms():
            check_budget(algorithm, self.trajectories)

    def describe(self) -> dict[str, Any]:
        """Those entries of a run's config.json that must agree if the run is to stand for this unit."""
        env = make(self.env)
        algorithms = self.algorithms()
        return {
            "env": self.env,
            "algorithm": self.algorithm,
            "settings": [store.plain(a.settings) for a in algorithms],
            "trajectories": self.trajectories,
            "seeds": list(range(self.first_seed, self.first_seed + self.seeds)),
            "horizon": env.horizon if self.horizon is None else self.horizon,
        }


def run_unit(unit: Unit, root: Path) -> Columns:
    """The table of a unit: read if it is there, computed and kept otherwise."""
    folder = root / unit.folder
    if folder.exists():
        return read_unit(unit, root)
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    chunks = itertools.count()

    def after_compiling(now: Progress) -> None:
        if next(chunks) == 0:
            give_memory_back()

    train(
        unit.env,
        unit.algorithms(),
        unit.trajectories,
        unit.seeds,
        unit.first_seed,
        unit.horizon,
        out=part,
        progress=after_compiling,
        checkpoint=None,
    )
    part.rename(folder)
    return read_unit(unit, root)


def read_unit(unit: Unit, root: Path) -> Columns:
    """The table of a unit that is done; InputError where the folder holds something else."""
    config, wanted = store.read_config(root / unit.folder), unit.describe()
    for name, value in wanted.items():
        if config[name] != value:
            raise InputError(
                f"{root / unit.folder} holds a run with another {name}: {_short(config[name])}; expected {_short(value)}. "
                "Give another folder, or delete that one."
            )
    return store.read_metrics(root / unit.folder)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 80 else f"{text[:77]}..."


@dataclasses.dataclass(frozen=True)
class Workshop:
    """Where the units of a study are kept, and how they come about."""

    root: Path
    report: Report | None = None
    train: bool = True  # False: a unit that is missing is an error

    def run(self, units: Sequence[Unit]) -> list[Columns]:
        """The tables of all units. What is there is checked before anything is run."""
        missing = [unit for unit in units if not (self.root / unit.folder).exists()]
        for unit in units:
            if unit not in missing:
                read_unit(unit, self.root)
        if missing and not self.train:
            raise InputError(f"{self.root / missing[0].folder} is missing ({len(missing)} runs in all): run the study again.")
        done: list[str] = []

        def work(unit: Unit) -> Columns:
            columns = run_unit(unit, self.root)
            give_memory_back()
            done.append(unit.folder)
            self.tell(unit.folder, len(done), len(units))
            return columns

        return [columns for first in range(0, len(units), GROUP) for columns in at_once(work, units[first : first + GROUP])]

    def keep(self, name: str, measure: Callable[[], Any]) -> Any:
        """What a JSON file of the study holds; measured and written if it is not there."""
        file = self.root / name
        if not file.exists():
            if not self.train:
                raise InputError(f"{file} is missing: run the study again.")
            file.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(file, measure())
        return json.loads(file.read_text(encoding="utf-8"))

    def tell(self, name: str, done: int, count: int) -> None:
        if self.report:
            self.report(name, done, count)


def at_once(work: Callable[[Unit], Columns], units: Sequence[Unit]) -> list[Columns]:
    """The work for some units, several at once. What was compiled for them is dropped when all are done."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(work, unit) for unit in units]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        finally:
            pool.shutdown()
            jax.clear_caches()
            give_memory_back()


def give_memory_back() -> None:
    """Return to the system what compiling and running have freed: glibc keeps it otherwise, gigabytes after some units."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def split_settings(columns: Columns, count: int) -> list[Columns]:
    """The tables of the settings of a unit, one by one."""
    return [{name: column[columns["setting"] == i] for name, column in columns.items()} for i in range(count)]
