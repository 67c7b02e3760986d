"""The comparison of the whole family, and its report.

Every algorithm runs on every task with published settings (or its defaults), is tuned like all others, and runs with the best
configuration on fresh seeds. The report has the scores as a map, the gains over STORM-PG and over the default of the library,
the authors' claims with verdicts, and all curves.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from stormpg import files
from stormpg.algorithms import DEFAULT, make_algorithm
from stormpg.envs import make
from stormpg.errors import InputError, choose
from stormpg.family.cells import Cell, Size, compute, is_stored, keep, read
from stormpg.family.claims import all_claims
from stormpg.family.findings import content
from stormpg.family.rows import REFERENCES, ROWS
from stormpg.family.tasks import TASKS, Task
from stormpg.report.charts import draw_charts
from stormpg.report.page import write_page
from stormpg.report.tables import markdown
from stormpg.studies import verdicts
from stormpg.studies.study import claimed
from stormpg.studies.workspace import Part, Workspace

NAME = "family"
INSIDE, OUTSIDE = Size(16, 8, 2), Size(5, 6, 1)  # of cells in JAX, and outside


@dataclasses.dataclass(frozen=True)
class Suite:
    """A requested comparison: the names of algorithms and tasks, and limits for a quick look."""

    algorithms: tuple[str, ...] = ROWS
    envs: tuple[str, ...] = tuple(task.env for task in TASKS)
    seeds: int = INSIDE.seeds
    trajectories: int | None = None

    @property
    def tasks(self) -> list[Task]:
        """The tasks with their budgets, limited by `trajectories`."""
        known = {task.env: task for task in TASKS}
        chosen = [known[choose("task", env, known)] for env in self.envs]
        most = self.trajectories
        return [t if most is None else t._replace(trajectories=min(t.trajectories, most)) for t in chosen]

    def cells(self) -> dict[tuple[str, str], Cell]:
        """The cells by environment and algorithm. Those that take longest come first: the default's, and those in Python."""
        cells = [Cell(name, task, self.size(task)) for task in self.tasks for name in self.algorithms]
        cells.sort(key=lambda cell: (cell.algorithm != DEFAULT, not cell.task.outside))
        return {(cell.task.env, cell.algorithm): cell for cell in cells}

    def size(self, task: Task) -> Size:
        usual = OUTSIDE if task.outside else INSIDE
        return usual._replace(seeds=min(usual.seeds, self.seeds), tuning_seeds=min(usual.tuning_seeds, self.seeds))


def check(suite: Suite) -> None:
    """InputError if a part of the suite cannot be run."""
    missing = [name for name in REFERENCES if name not in suite.algorithms]
    if missing:
        raise InputError(f"the suite has no {missing[0]}, with which all others are compared: add it to --algorithms.")
    for name in suite.algorithms:
        make_algorithm(name)
    for task in suite.tasks:
        make(task.env)


def compare(workspace: Workspace, suite: Suite, commands: Sequence[str]) -> dict[str, Any]:
    """Run the missing cells, write the report, and return its content."""
    check(suite)
    cells = suite.cells()
    units = [unit for cell in cells.values() for unit in (cell.given(), cell.tuning())]
    with claimed(workspace, {"kind": NAME, **dataclasses.asdict(suite)}, units):
        run_cells(workspace, list(cells.values()))
        runs = {key: read(cell, workspace.root) for key, cell in cells.items()}
        data = content(suite.tasks, suite.algorithms, cells, runs, judged(suite), commands)
        write(workspace, data)
    return data


def run_cells(workspace: Workspace, cells: Sequence[Cell]) -> None:
    """Run and store the cells that are missing."""
    missing = [cell for cell in cells if not is_stored(cell, workspace.root)]
    parts = {cell.name: Part(partial(compute, cell), partial(keep, cell, workspace.root)) for cell in missing}
    workspace.do(parts, len(cells))


def judged(suite: Suite) -> list[tuple[str, verdicts.Claim]]:
    """The claims about algorithms and tasks of the suite."""
    known = set(suite.algorithms)
    return [(env, claim) for env, claim in all_claims() if env in suite.envs and known.issuperset(claim.id.split("/")[1:])]


def write(workspace: Workspace, data: Mapping[str, Any]) -> None:
    """Write the report: the page, tables, claims, scores and tuned curves as data, and the maps as figures."""
    root = workspace.root
    files.write_json(root / "claims.json", data["claims"])
    files.write_json(root / "scores.json", data["scores"])
    files.write_json(root / "curves.json", tuned_curves(data))
    files.write_text(root / "tables.md", markdown(data))
    for number, chart in enumerate(data["charts"]):
        draw_charts([chart], [root / f"map{number + 1}.{kind}" for kind in ("png", "pdf")])
    write_page(data, root / "report.html")


def tuned_curves(data: Mapping[str, Any]) -> dict[str, Any]:
    """The curves with tuned settings, by environment and algorithm."""
    keys = ("estimate", "low", "high")
    return {
        env["name"]: {
            "grid": env["grid"],
            "algorithms": {name: {key: one["curves"]["tuned"][key] for key in keys} for name, one in env["algorithms"].items()},
        }
        for env in data["environments"]
    }
