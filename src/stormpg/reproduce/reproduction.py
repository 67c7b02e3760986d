"""The reproduction of the paper's §7: both figures in both readings, and the claims.

With `full`, also equal tuning, robustness and variance.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stormpg.algorithms import make_algorithm
from stormpg.envs import make
from stormpg.paper import FIGURES, Figure, settings_for
from stormpg.report.write import write_report
from stormpg.reproduce import claims, quantities, robustness, variance
from stormpg.reproduce.limits import judge_limits, limit_units
from stormpg.runs.table import WINDOW
from stormpg.statistics import Interval, percentiles
from stormpg.studies import verdicts
from stormpg.studies.protocols import Curves
from stormpg.studies.report_content import content
from stormpg.studies.study import (
    Switches,
    Task,
    Tuning,
    claimed,
    fixed_unit,
    searches_of,
    shared_settings,
    tune_task,
    tuning_for,
)
from stormpg.studies.work_units import Unit
from stormpg.studies.workspace import Workspace

TUNED = ("reinforce", "pgt", "gpomdp", "svrpo", "svrpg", "srvr-pg", "storm-pg")
# Shorter than the figures, to save time. The tuned runs have the same length, so that tuning sees all that is shown.
TUNING = {"cartpole-continuous": Tuning(8, 1500, 5), "rllab-mountain-car": Tuning(4, 1000, 4)}
FRESH_SEEDS = 20  # the most seeds for each of the fourteen tuned runs
ROBUSTNESS = {"cartpole-continuous": (500, 10)}  # trajectories, seeds
CHECKPOINTS = {"cartpole-continuous": ((50, 100, 200, 500, 1000), 10, 2000), "rllab-mountain-car": ((50, 200, 600), 5, 1000)}

NOTES = (
    "Baseline: the paper does not give b_h. The default here is the leave-one-out mean of γ^h r_h over the batch; without a "
    "baseline (--baseline none) all four methods become unstable.",
    "Learning-rate decay: the paper gives a range (0.5 to 0.99) and no schedule. The default here is no decay; --decay and "
    "--decay-every enable it for every method.",
    "Policy: Gaussian, one hidden layer of 64 tanh units, fixed σ = 1, as in earlier code for these methods; the paper does "
    "not give σ. Adam with the table's η.",
    "GPOMDP on Mountain-Car: the paper omits it, and its Table 3 has no row for it. It runs with Table 2's η = 0.005 and "
    "S0 = 25.",
    "Two readings of each environment: the paper's text (+1 per step) and rllab's for Cart-Pole, rllab's (with a model of its "
    "Box2D physics) and Gym's for Mountain-Car.",
    f"Each point of a curve is the mean over the previous {WINDOW} trajectories. All trajectories are counted, "
    "including those of large batches.",
)


@dataclasses.dataclass(frozen=True)
class Plan(Switches):
    """The options of a reproduction. `trajectories` limits every budget, for a quick look."""

    seeds: int = 30
    trajectories: int | None = None

    def budget(self, trajectories: int) -> int:
        """The number of trajectories, limited by `self.trajectories`."""
        return trajectories if self.trajectories is None else min(trajectories, self.trajectories)


def reproduce(workspace: Workspace, plan: Plan, full: bool, commands: Sequence[str]) -> dict[str, Any]:
    """Run what is missing, judge the claims, write the report, and return its content."""
    units = base_units(plan)
    tuned, grids = (TUNING, robustness_grids(plan)) if full else ({}, {})
    searches = {
        env: searches_of(env, TUNED, tuning_for(workspace, env, cut(tuning, plan)), plan.switches)
        for env, tuning in tuned.items()
    }
    known = [
        *units.values(),
        *limit_units(),
        *(unit for search in searches.values() for found in search.values() for unit in found),
        *(unit for of_env in grids.values() for grid in of_env for unit in grid.units()),
    ]
    with claimed(workspace, {"kind": "reproduce", **dataclasses.asdict(plan)}, known):
        workspace.run(known)  # all at once, so that no core is idle at the end of a part; the parts below find them finished
        data = judged(workspace, plan, full, units, searches, grids, commands)
        write_report(data, workspace.root, {f"figure{f.number}": f.env for f in reversed(FIGURES)})
    return data


def judged(
    workspace: Workspace,
    plan: Plan,
    full: bool,
    units: Mapping[tuple[str, str], Unit],
    searches: Mapping[str, Mapping[str, Sequence[Unit]]],
    grids: Mapping[str, Sequence[robustness.Grid]],
    commands: Sequence[str],
) -> dict[str, Any]:
    """Return the content of the report. Most of the runs it needs exist already."""
    tasks = base_tasks(workspace, plan, units)
    rows = judge_limits(workspace)
    heatmaps: list[Any] = []
    spreads: list[Any] = []
    if full:
        for task in tasks:
            if task.env in searches:
                tune_task(task, searches[task.env], min(plan.seeds, FRESH_SEEDS), workspace)
        heatmaps, sensitivity = judge_robustness(workspace, grids)
        rows += sensitivity
        spreads = measure_variance(workspace, plan)
    curves = {task.env: task.curves() for task in tasks}
    claims_of_figures = [row for figure in FIGURES for row in judge_figure(figure, curves[figure.env])]
    notes = list(NOTES)
    if full:
        notes.append(
            "Equal tuning (c) has its own, smaller budget, to save time. "
            + " ".join(
                f"{task.env}: {task.tuning_trajectories} trajectories in tuning, {task.tuned_trajectories} in the tuned runs."
                for task in tasks
                if task.tuned
            )
            + " Claims that need more are not measured under (c)."
        )
    else:
        notes.append("Equal tuning (c), robustness and variance were not measured: run `stormpg reproduce --full`.")
    return content(
        "STORM-PG: the paper's experiments, reproduced",
        f"{plan.seeds} seeds of every algorithm, with the settings of the paper's Tables 2 and 3. Every seed is in the report.",
        tasks,
        curves,
        claims_of_figures + rows,
        heatmaps,
        spreads,
        commands,
        notes,
    )


def base_units(plan: Plan) -> dict[tuple[str, str], Unit]:
    """The runs of Figures 1 and 2 in both readings, with the paper's settings: a unit for each environment and algorithm."""
    return {
        (figure.env, name): fixed_unit(figure.env, name, plan.budget(figure.trajectories), plan.seeds, plan.switches)
        for figure in FIGURES
        for name in figure.algorithms
    }


def base_tasks(workspace: Workspace, plan: Plan, units: Mapping[tuple[str, str], Unit]) -> list[Task]:
    """Run the units. Return a task for each figure."""
    tables = dict(zip(units, workspace.run(list(units.values())), strict=True))
    return [
        Task(
            f.env,
            f.title,
            plan.budget(f.trajectories),
            f.ceiling,
            {name: units[f.env, name].settings[0] for name in f.algorithms},
            {name: tables[f.env, name] for name in f.algorithms},
            note=f"Figure {f.number} of the paper.",
            algorithms={name: name for name in (*f.algorithms, *TUNED)},
        )
        for f in FIGURES
    ]


def judge_figure(figure: Figure, curves: Curves) -> list[dict[str, Any]]:
    """Judge the claims about a figure under each protocol."""
    rows = claims.cart_pole_claims() if figure.number == 1 else claims.mountain_car_claims()
    return [verdicts.as_row(claim, figure.env, verdicts.judge(claim, curves)) for claim in rows]


def cut(tuning: Tuning, plan: Plan) -> Tuning:
    """The tuning, limited to the budget and the seeds of the plan."""
    return Tuning(tuning.points, plan.budget(tuning.trajectories), min(tuning.seeds, plan.seeds))


def robustness_grids(plan: Plan) -> dict[str, list[robustness.Grid]]:
    """The grids of every method, by environment."""
    return {
        env: [
            grid
            for name in robustness.METHODS
            for grid in robustness.grids(
                env, name, plan.budget(trajectories), min(seeds, plan.seeds), shared_settings(name, plan.switches)
            )
        ]
        for env, (trajectories, seeds) in ROBUSTNESS.items()
    }


def judge_robustness(workspace: Workspace, grids: Mapping[str, Sequence[robustness.Grid]]) -> tuple[list[Any], list[Any]]:
    """Return the heat maps of each method, and the claims that STORM-PG is the least sensitive."""
    heatmaps, rows = [], []
    for env, all_grids in grids.items():
        units = [unit for grid in all_grids for unit in grid.units()]
        tables = dict(zip((unit.folder for unit in units), workspace.run(units), strict=True))
        ceiling = next(f.ceiling for f in FIGURES if f.env == env)
        shares: dict[tuple[str, bool], Any] = {}
        for grid in all_grids:
            curves = grid.curves([tables[unit.folder] for unit in grid.units()])
            share = robustness.good_share(curves, env, grid.algorithm, grid.row)
            heatmaps.append(robustness.heatmap(grid, curves, share, quantities.NEAR_MAXIMUM * (ceiling or 0.0)))
            shares[grid.algorithm, grid.row == "B"] = share
        rows += sensitivity_rows(env, shares, all_grids[0].seeds)
    return heatmaps, rows


def sensitivity_rows(env: str, shares: Mapping[tuple[str, bool], Interval], seeds: int) -> list[dict[str, Any]]:
    """Judge the claims on the shares of good settings. The keys are the algorithm, and whether the grid is η × B."""
    rows = []
    for other in ("svrpg", "srvr-pg"):
        for of_batch in (False, True):
            ours, theirs = shares["storm-pg", of_batch], shares[other, of_batch]
            gap = percentiles(ours.estimate - theirs.estimate, ours.draws - theirs.draws, seeds, seeds)
            measure: Callable[[Any], Interval] = functools.partial(lambda gap, _: gap, gap)
            what = "η × B" if of_batch else "η × α against η × m"
            claim = verdicts.Claim(
                f"robustness/{other}/{'B' if of_batch else 'momentum'}",
                f"storm-pg tolerates more settings than {other} ({what})",
                "share of the grid within 5 % of its best: storm-pg's less the other's",
                "above 0",
                0,
                measure,
                low=1e-9,
            )
            rows.append(verdicts.as_row(claim, env, verdicts.judge(claim, {"all": {}})))
    return rows


def measure_variance(workspace: Workspace, plan: Plan) -> list[dict[str, Any]]:
    """Measure the spread of g_t along training for the algorithms of the figures."""
    measures, parts = {}, []
    for env, (checkpoints, seeds, reference) in CHECKPOINTS.items():
        budgets = sorted({plan.budget(c) for c in checkpoints})
        for name in next(f.algorithms for f in FIGURES if f.env == env):
            algorithm = make_algorithm(name, **settings_for(env, name), **shared_settings(name, plan.switches))
            measures[f"variance/{env}/{name}.json"] = functools.partial(
                variance.along, make(env), algorithm, budgets, min(seeds, plan.seeds), plan.seeds, plan.budget(reference)
            )
            parts.append((env, name, budgets))
    found: dict[str, Any] = {}
    for (env, name, budgets), values in zip(parts, workspace.measure(measures), strict=True):
        found.setdefault(env, {"env": env, "checkpoints": budgets, "algorithms": {}})["algorithms"][name] = values
    return list(found.values())
