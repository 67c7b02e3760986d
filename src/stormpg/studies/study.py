"""A study: algorithms on environments, trained or loaded, evaluated under the protocols, and written to one folder."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpg import files
from stormpg.algorithms import ALGORITHMS, make_algorithm
from stormpg.errors import InputError, shown
from stormpg.files.reading import read_object
from stormpg.paper import settings_for
from stormpg.runs import run_folder
from stormpg.runs.checkpoints import LOCK, owned
from stormpg.runs.table import Columns
from stormpg.studies.equal_tuning import FRESH_SEED, best_setting, tuning_units
from stormpg.studies.protocols import Curves, curves_of
from stormpg.studies.work_units import Unit
from stormpg.studies.workspace import Workspace

ABOUT = "experiment.json"  # the description of the study in a folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switches:
    """Settings that override those of every algorithm of a study that has them. None: the algorithm's own value."""

    baseline: str | None = None
    decay: float | None = None
    decay_every: int | None = None

    @property
    def switches(self) -> dict[str, Any]:
        """The overrides by name."""
        return {"baseline": self.baseline, "decay": self.decay, "decay_every": self.decay_every}


@dataclasses.dataclass
class Task:
    """An environment with the runs of each algorithm, both with the given settings and with tuned settings."""

    env: str
    title: str
    trajectories: int
    ceiling: float | None
    settings: dict[str, Mapping[str, Any]]  # as given; see `resolved`
    fixed: dict[str, Columns]
    note: str = ""
    algorithms: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the algorithm of each name, if it can be made
    tuned_settings: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    tuned: dict[str, Columns] = dataclasses.field(default_factory=dict)
    tuning_trajectories: int = 0  # the budget of a tuning run
    tuned_trajectories: int = 0  # the budget of a tuned run: the same, except in studies of earlier versions
    tuning: dict[str, list[float]] = dataclasses.field(default_factory=dict)  # the score of each configuration

    def curves(self) -> Curves:
        """The curves under all protocols."""
        return curves_of(self.env, self.fixed, self.trajectories, self.tuned, self.tuned_trajectories)


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The budget of equal tuning for each algorithm: 3 · points configurations, each with these trajectories and seeds.

    The tuned runs have the same number of trajectories.
    """

    points: int
    trajectories: int
    seeds: int


def shared_settings(algorithm: str, switches: Mapping[str, Any]) -> dict[str, Any]:
    """The switches (baseline, decay ...) that an algorithm supports and that are not None."""
    known = make_algorithm(algorithm).settings
    return {name: value for name, value in switches.items() if name in known and value is not None}


def fixed_unit(
    env: str, algorithm: str, trajectories: int, seeds: int, switches: Mapping[str, Any], horizon: int | None = None
) -> Unit:
    """The unit with the paper's settings, or the constructor's defaults if the paper gives none."""
    settings = {**settings_for(env, algorithm), **shared_settings(algorithm, switches)}
    return Unit(f"runs/{env}/{algorithm}", env, algorithm, (settings,), trajectories, seeds, horizon=horizon)


def searches_of(
    env: str, algorithms: Sequence[str], tuning: Tuning, switches: Mapping[str, Any], horizon: int | None = None
) -> dict[str, list[Unit]]:
    """The tuning units of each algorithm."""
    sizes = (tuning.points, tuning.trajectories, tuning.seeds)
    return {name: tuning_units(env, name, *sizes, shared_settings(name, switches), horizon) for name in algorithms}


def stored_budget(workspace: Workspace, folder: str, pattern: str) -> tuple[int, int] | None:
    """The stored trajectories and seeds, if only a report is made: studies of earlier versions had other budgets."""
    found = [] if workspace.train else sorted((workspace.root / folder).glob(f"{pattern}/config.json"))
    if not found:
        return None
    config = run_folder.read_config(found[0].parent)
    return config["trajectories"], len(config["seeds"])


def tuning_for(workspace: Workspace, env: str, tuning: Tuning) -> Tuning:
    """The budget of tuning: as requested, or as stored if only a report is made."""
    return Tuning(tuning.points, *(stored_budget(workspace, f"tuning/{env}", "*/*") or (tuning.trajectories, tuning.seeds)))


def tune_task(task: Task, searches: Mapping[str, Sequence[Unit]], seeds: int, workspace: Workspace) -> None:
    """Tune every algorithm equally, run the best settings on fresh seeds with the same budget, and add both to the task."""
    one = next(unit for search in searches.values() for unit in search)
    budget, seeds = stored_budget(workspace, f"runs/{task.env}", "*-tuned") or (one.trajectories, seeds)
    task.tuning_trajectories, task.tuned_trajectories = one.trajectories, budget
    tables = iter(workspace.run([unit for search in searches.values() for unit in search]))
    for name, search in searches.items():
        task.tuned_settings[name], task.tuning[name] = best_setting(search, [next(tables) for _ in search])
    fresh = [
        Unit(f"runs/{task.env}/{name}-tuned", task.env, name, (settings,), budget, seeds, FRESH_SEED, one.horizon)
        for name, settings in task.tuned_settings.items()
    ]
    task.tuned.update(zip(task.tuned_settings, workspace.run(fresh), strict=True))


@contextlib.contextmanager
def claimed(workspace: Workspace, about: Mapping[str, Any], units: Iterable[Unit]) -> Iterator[None]:
    """Lock the folder of a study for this process. It must be new, or started with the same settings.

    `units` are the first units of the study: they are checked before anything is written. If only a report is made, the folder
    is not locked, so that another process can work in it.
    """
    for unit in units:
        unit.check()
    check_folder(workspace.root, about)
    if not workspace.train:
        yield
        return
    with owned(workspace.root):
        check_folder(workspace.root, about)  # again, as another process may have written to it in the meantime
        if not (workspace.root / ABOUT).exists():
            files.write_json(workspace.root / ABOUT, about)
        yield


def check_folder(root: Path, about: Mapping[str, Any]) -> None:
    """Raise InputError if a folder holds another study or other files. Nothing is written."""
    if (root / ABOUT).exists():
        held, asked = read_about(root), files.as_json(about)
        for name in asked.keys() | held.keys():
            if held.get(name) != asked.get(name):
                raise InputError(
                    f"{root} holds a study with {name} = {shown(held.get(name))}; asked for {shown(asked.get(name))}. "
                    "Give another folder with --out, or delete that one."
                )
        return
    run_folder.prepare(root)
    if root.is_dir() and any(path.name != LOCK for path in root.iterdir()):
        raise InputError(f"{root} holds other files and no {ABOUT}: give an empty or a new folder with --out.")


def read_about(root: Path) -> dict[str, Any]:
    """Read the description of the study in a folder."""
    return read_object(root / ABOUT, "the description of a study")


def check_algorithms(names: Sequence[str]) -> list[str]:
    """Check the names of algorithms. Each may be given only once."""
    for name in names:
        make_algorithm(name)
    if len(set(names)) < len(names) or not names:
        raise InputError(
            f"the algorithms are {', '.join(names) or 'none'}; expected different ones of {', '.join(ALGORITHMS)}."
        )
    return list(names)
