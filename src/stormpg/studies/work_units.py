"""Units of work: each is one compiled batch of settings and seeds, stored in its own folder.

A finished unit is loaded, and a missing one is run. A folder gets its final name only when it is complete, so an interrupted
experiment resumes with the missing units.
"""

import contextlib
import ctypes
import dataclasses
import gc
import itertools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stormpg import files
from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.envs import make
from stormpg.errors import InputError, shown
from stormpg.policies.constructors import policy_for
from stormpg.policies.descriptions import describe_policy
from stormpg.runs import run_folder
from stormpg.runs.result import Progress
from stormpg.runs.table import Columns
from stormpg.train import check_budget, train


@dataclasses.dataclass(frozen=True)
class Unit:
    """What to train, and in which subfolder of the experiment to store it. Its settings may differ in floats only."""

    folder: str
    env: str
    algorithm: str
    settings: tuple[Mapping[str, Any], ...]
    trajectories: int
    seeds: int
    first_seed: int = 0
    horizon: int | None = None
    policy: tuple[Mapping[str, Any], ...] = ()  # arguments of `policy_for` for each of `settings`; empty: the default

    def policies(self) -> list[Any]:
        """The policies of all settings; empty for the default policy."""
        env = make(self.env)
        return [policy_for(env, **settings) for settings in self.policy]

    def algorithms(self) -> list[Algorithm]:
        """The algorithms of all settings."""
        return [make_algorithm(self.algorithm, **settings) for settings in self.settings]

    def check(self) -> None:
        """Raise InputError if the unit cannot be run as requested."""
        make(self.env)
        for algorithm in self.algorithms():
            check_budget(algorithm.schedule.S0, self.trajectories)

    def describe(self) -> dict[str, Any]:
        """The entries of config.json that a stored run must have to be accepted as this unit."""
        env = make(self.env)
        algorithms = self.algorithms()
        return {
            "env": self.env,
            "algorithm": self.algorithm,
            "settings": [run_folder.plain(a.settings) for a in algorithms],
            "trajectories": self.trajectories,
            "seeds": list(range(self.first_seed, self.first_seed + self.seeds)),
            "horizon": env.horizon if self.horizon is None else self.horizon,
            **({"policies": [files.as_json(describe_policy(policy)) for policy in self.policies()]} if self.policy else {}),
        }


def compute_unit(unit: Unit) -> dict[str, bytes]:
    """Run a unit and return the content of its files by name."""
    chunks = itertools.count()

    def after_compiling(now: Progress) -> None:
        if next(chunks) == 0:
            give_memory_back()

    with tempfile.TemporaryDirectory() as folder:
        train(
            unit.env,
            unit.algorithms(),
            unit.trajectories,
            unit.seeds,
            unit.first_seed,
            unit.horizon,
            unit.policies() or None,
            out=folder,
            progress=after_compiling,
            checkpoint=None,
        )
        give_memory_back()
        return {name: (Path(folder) / name).read_bytes() for name in run_folder.FILES}


def keep_unit(unit: Unit, root: Path, content: Mapping[str, bytes]) -> None:
    """Write the files of a unit. The folder gets its final name when all are written."""
    folder = root / unit.folder
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name, data in content.items():
        files.write_bytes(part / name, data)
    part.rename(folder)


def read_unit(unit: Unit, root: Path) -> Columns:
    """Read the table of a finished unit. Raises InputError if the folder holds another run."""
    config, wanted = run_folder.completed(run_folder.read_config(root / unit.folder)), unit.describe()
    for name, value in wanted.items():
        if config[name] != value:
            raise InputError(
                f"{root / unit.folder} holds a run with another {name}: {shown(config[name])}; expected {shown(value)}. "
                "Give another folder, or delete that one."
            )
    return run_folder.read_metrics(root / unit.folder, config)


def give_memory_back() -> None:
    """Return freed memory to the operating system. glibc would keep it otherwise, gigabytes after several units."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def drop_programs() -> None:
    """Drop all compiled programs. Each takes about 30 MB and many of the memory mappings that Linux allows a process."""
    jax.clear_caches()
    give_memory_back()


def split_settings(columns: Columns, count: int) -> list[Columns]:
    """Split the table of a unit by setting. A table lists the runs one after another, and so the settings too."""
    edges = np.searchsorted(columns["setting"], np.arange(count + 1))
    return [{name: column[first:last] for name, column in columns.items()} for first, last in itertools.pairwise(edges)]
