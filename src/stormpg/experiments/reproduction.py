"""The paper's first figure: four algorithms on Cart-Pole with the settings of Table 2, every seed shown."""

from pathlib import Path
from typing import Any

import numpy as np

from stormpg import stats, store
from stormpg.algorithms import make_algorithm
from stormpg.envs import make
from stormpg.experiments.paper import FIGURE_1, FIGURE_1_TRAJECTORIES, settings_for
from stormpg.report.figures import learning_curves
from stormpg.terminal import out, progress_bar, table
from stormpg.train import train

TRAJECTORIES = FIGURE_1_TRAJECTORIES
CLAIMED = {"gpomdp": 3000, "svrpg": 1500, "srvr-pg": 1500, "storm-pg": 500}  # "reaches the maximum at about"
WINDOW, NEAR = 50, 0.99  # a curve has reached the maximum when its mean over 50 trajectories is 99 % of it


def reproduce(folder: Path, seeds: int, trajectories: int) -> dict[str, Any]:
    """Train, print the table, draw the figure, and return the figures of the table."""
    env = make("cartpole-continuous")
    for name in FIGURE_1:
        store.prepare(folder / name)
    grid = np.arange(10, trajectories + 1, 10)
    smooth, rough, report = {}, {}, {}
    for name in FIGURE_1:
        algorithm = make_algorithm(name, **settings_for(env.name, name))
        with progress_bar(name) as progress:
            result = train(env, algorithm, trajectories, seeds, out=folder / name, progress=progress)
        smooth[name] = stats.curves(result.columns, grid, WINDOW)
        rough[name] = stats.mean_interval(stats.curves(result.columns, grid, 10))
        report[name] = {
            "claimed": CLAIMED[name],
            "reached": stats.first_reach(smooth[name].mean(axis=0), grid, NEAR * env.horizon),
            "returns": {
                x: float(smooth[name].mean(axis=0)[grid == x][0]) for x in (250, 500, 1000, 1500, 3000) if x <= trajectories
            },
            "final": float(smooth[name][:, -1].mean()),
            "worst_seed": float(smooth[name][:, -1].min()),
            "diverged": int(np.asarray(result.states.diverged).sum()),
        }
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "figure1.png"
    subtitle = f"mean of all {seeds} seeds (no selection), 95 % bootstrap interval over seeds; settings of the paper's Table 2"
    learning_curves(rough, grid, "Cart-Pole, +1 a step, H = 100", subtitle, picture, ceiling=env.horizon)
    show(report, seeds)
    out.print(f"Figure and runs written to {folder}", highlight=False)
    return report


def show(report: dict[str, Any], seeds: int) -> None:
    points = list(next(iter(report.values()))["returns"])
    rows = [
        [
            name,
            str(r["claimed"]),
            str(r["reached"]) if r["reached"] else "never",
            *(f"{r['returns'][x]:.1f}" for x in points),
            f"{r['worst_seed']:.1f}",
            str(r["diverged"]),
        ]
        for name, r in report.items()
    ]
    headings = ("algorithm", "paper", "here", *(f"at {x}" for x in points), "worst", "diverged")
    caption = (
        "paper, here: trajectories until the maximum is reached. at x: mean return there. worst: worst seed at the end. "
        f"Mean of all {seeds} seeds over the {WINDOW} trajectories before each point; the maximum counts as reached at "
        f"{NEAR:.0%} of it. The paper shows its ten best runs and does not say how it chose its baseline or rate decay; "
        "here: leave-one-out time baseline, no decay."
    )
    table("The paper's Figure 1: Cart-Pole", headings, rows, caption)
