"""What the default algorithm learns on the built-in tasks: all seeds, one setting."""

import numpy as np

import stormpg
from stormpg.bench.measure import BenchTable, Row, Tell

# Trajectories of each task.
TASKS = {
    "cartpole-continuous": 300,
    "cartpole": 400,
    "rllab-cartpole": 600,
    "pendulum": 1500,
    "rllab-mountain-car": 300,
    "mountain-car-continuous": 600,
    "acrobot": 400,
    "lqr": 600,
}
SEEDS, FIRST = 30, 30


def figures(returns: np.ndarray) -> tuple[list[float], dict[str, float]]:
    """The end of each seed, and the summary of a curve, from the mean returns of all batches: [seeds, iterations].

    The end is the last eighth of the budget. A point of the curve is the mean of the sixteenth before it.
    """
    count = returns.shape[1]

    def mean(begin: float, end: float) -> np.ndarray:
        """Of each seed, over this part of the budget."""
        average: np.ndarray = returns[:, round(count * begin) : max(round(count * end), 1)].mean(axis=1)
        return average

    eighths = [float(mean(k / 8 - 1 / 16, k / 8).mean()) for k in range(1, 9)]
    about = {
        "mean of all": float(returns.mean()),
        "mean at eighths": float(np.mean(eighths)),
        "at 1/8": eighths[0],
        "at 2/8": eighths[1],
        "worst end": float(mean(7 / 8, 1).min()),
    }
    return [float(x) for x in mean(7 / 8, 1)], about


def built_in(tell: Tell, tasks: dict[str, int] = TASKS, seeds: int = SEEDS) -> BenchTable:
    """A row for each task."""
    rows = []
    for env, trajectories in tasks.items():
        tell(env)
        metrics = stormpg.train(env, trajectories=trajectories, seeds=seeds, seed=FIRST).metrics
        returns = np.stack([metrics.filter(metrics["seed"] == one)["return"].to_numpy() for one in metrics["seed"].unique()])
        rows.append(Row(f"{env}, {trajectories}", *figures(returns)))
    note = (
        f"{seeds} seeds from {FIRST} on, one setting. The median and spread are those of the seeds' mean returns over the last "
        "eighth of the trajectories. Mean at eighths: of the points of the curve after 1/8, 2/8 ... of them."
    )
    return BenchTable("built-in", "What the default learns on the built-in tasks", "return", rows, note)
