"""Comparison of any algorithms on any environment, with the folder layout and the protocols of the reproduction."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpg.errors import InputError
from stormpg.report.write import write_report
from stormpg.runs import run_folder
from stormpg.studies.report_content import content
from stormpg.studies.study import ABOUT, Switches, Task, Tuning, claimed, fixed_unit, searches_of, tune_task, tuning_for
from stormpg.studies.work_units import split_settings
from stormpg.studies.workspace import Workspace

MOST_CURVES, MOST_SEEDS = 200, 10**4  # limits for a run in a report, as every curve is resampled a thousand times


@dataclasses.dataclass(frozen=True)
class Comparison(Switches):
    """A requested comparison."""

    env: str
    algorithms: tuple[str, ...]
    trajectories: int
    seeds: int
    horizon: int | None = None


def compare(workspace: Workspace, wanted: Comparison, tune: bool, commands: Sequence[str]) -> dict[str, Any]:
    """Run the missing units and write the report. `tune`: also tune every algorithm equally, protocol (c)."""
    units = [
        fixed_unit(wanted.env, name, wanted.trajectories, wanted.seeds, wanted.switches, wanted.horizon)
        for name in wanted.algorithms
    ]
    with claimed(workspace, {"kind": "compare", **dataclasses.asdict(wanted)}, units):
        tables = workspace.run(units)
        task = Task(
            wanted.env,
            wanted.env,
            wanted.trajectories,
            None,
            {unit.algorithm: unit.settings[0] for unit in units},
            {unit.algorithm: table for unit, table in zip(units, tables, strict=True)},
            algorithms={name: name for name in wanted.algorithms},
        )
        if tune:
            tuning = tuning_for(workspace, wanted.env, Tuning(4, wanted.trajectories, min(wanted.seeds, 8)))
            searches = searches_of(wanted.env, wanted.algorithms, tuning, wanted.switches, wanted.horizon)
            tune_task(task, searches, wanted.seeds, workspace)
        return write(workspace.root, [task], f"{wanted.seeds} seeds of every algorithm on {wanted.env}.", commands)


def report_runs(folders: Sequence[Path], root: Path, commands: Sequence[str]) -> dict[str, Any]:
    """Write a report of stored runs, grouped by environment, without training."""
    tasks: dict[str, Task] = {}
    for folder in folders:
        config = run_folder.read_config(folder)
        for name, most in (("settings", MOST_CURVES), ("seeds", MOST_SEEDS)):
            if len(config[name]) > most:
                raise InputError(f"the run in {folder} has {len(config[name])} {name}; a report shows at most {most}.")
        tables = split_settings(run_folder.read_metrics(folder, config), len(config["settings"]))
        env = config["env"]
        task = tasks.setdefault(env, Task(env, env, config["trajectories"], None, {}, {}))
        task.trajectories = min(task.trajectories, config["trajectories"])
        for number, (settings, table) in enumerate(zip(config["settings"], tables, strict=True)):
            name = unique(config["algorithm"] if len(tables) == 1 else f"{config['algorithm']} #{number}", task.fixed)
            task.settings[name], task.fixed[name] = settings, table
    if (root / ABOUT).exists():
        raise InputError(f"{root} holds a study: give another folder with --out.")
    root.mkdir(parents=True, exist_ok=True)
    return write(root, list(tasks.values()), f"{len(folders)} stored runs.", commands)


def unique(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with a number appended if it is already taken."""
    count = sum(1 for other in taken if other == name or other.startswith(f"{name} ("))
    return name if count == 0 else f"{name} ({count + 1})"


def write(root: Path, tasks: Sequence[Task], subtitle: str, commands: Sequence[str]) -> dict[str, Any]:
    """Write the report of these tasks, and return its data."""
    curves = {task.env: task.curves() for task in tasks}
    title = f"A comparison on {' and '.join(task.env for task in tasks)}"
    data = content(title, subtitle, tasks, curves, commands=commands)
    write_report(data, root, {f"figure{i + 1}": task.env for i, task in enumerate(tasks)})
    return data
