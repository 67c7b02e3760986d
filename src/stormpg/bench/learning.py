"""What is learned: the default algorithm of this library and those of other libraries, at equal environment steps.

Every run is a process of its own. Its result is appended to a file, so that an interrupted measurement continues: runs that the
file holds are not repeated, unless the settings of our default have changed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stormpg.algorithms import DEFAULT, make_algorithm
from stormpg.bench.libraries import SCRIPTS
from stormpg.bench.measure import BenchTable, Row, Tell, as_users_have_it
from stormpg.errors import InputError
from stormpg.statistics import Interval, iqm, stratified, stream

FILE = "learning.jsonl"
OURS = "stormpg"


class Task(NamedTuple):
    """A Gymnasium task: the budget of steps, and the returns between which scores are normalised.

    `random`: the mean of 30 to 100 episodes of uniformly random actions. `best`: the best figure in rl-baselines3-zoo's
    benchmark (of any algorithm, with up to 12 million steps), the task's maximum, or for Reacher that of TD3's paper.
    """

    env: str
    steps: int
    random: float
    best: float

    def score(self, mean: float) -> float:
        """0 for random actions, 1 for the best known figure."""
        return (mean - self.random) / (self.best - self.random)


TASKS = (
    Task("CartPole-v1", 100_000, 23.7, 500.0),
    Task("Acrobot-v1", 100_000, -497.1, -69.1),
    Task("MountainCarContinuous-v0", 100_000, -33.1, 96.7),
    Task("Pendulum-v1", 100_000, -1207.6, -151.3),
    Task("LunarLander-v3", 150_000, -192.0, 242.1),
    Task("LunarLanderContinuous-v3", 150_000, -212.7, 278.0),
    Task("InvertedPendulum-v5", 150_000, 5.2, 1000.0),
    Task("InvertedDoublePendulum-v5", 150_000, 49.1, 9360.0),
    Task("Reacher-v5", 150_000, -43.3, -3.6),
    Task("Swimmer-v5", 300_000, -1.3, 365.7),
    Task("Hopper-v5", 300_000, 16.7, 3754.2),
    Task("HalfCheetah-v5", 300_000, -273.6, 12089.9),
)


class Learner(NamedTuple):
    """A row of the comparison: its name, virtual environment (None: this one), script and arguments, and number of seeds."""

    name: str
    environment: str | None
    script: str
    arguments: tuple[str, ...]
    seeds: int


LEARNERS = (
    Learner(OURS, None, "stormpg_learning.py", (), 5),
    Learner("PPO", ".peers", "sb3_learning.py", ("PPO",), 3),
    Learner("A2C", ".peers", "sb3_learning.py", ("A2C",), 3),
    Learner("TRPO", ".peers", "sb3_learning.py", ("TRPO",), 3),
    Learner("PPO, rl-zoo", ".peers", "sb3_learning.py", ("zoo",), 3),
)


def ours() -> dict[str, Any]:
    """The settings of the default algorithm and its policy, by which its stored runs are recognised."""
    algorithm = make_algorithm(DEFAULT)
    return {"algorithm": DEFAULT, **algorithm.settings, **algorithm.policy.content}


def stored(file: Path) -> list[dict[str, Any]]:
    """The runs that a file holds. Our own runs with other settings are left out."""
    if not file.exists():
        return []
    try:
        runs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [run for run in runs if run["learner"] != OURS or run["settings"] == ours()]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is not a file of `stormpg bench --tables learning` ({error!r}): remove it.") from None


def missing(
    runs: Sequence[Mapping[str, Any]], tasks: Sequence[Task], learners: Sequence[Learner]
) -> Iterator[tuple[Learner, Task, int]]:
    """The runs that are not stored yet, one seed of all tasks and learners after the other."""
    held = {(run["learner"], run["env"], run["asked"], run["seed"]) for run in runs}
    for seed in range(max((learner.seeds for learner in learners), default=0)):
        for learner in learners:
            for task in tasks:
                if seed < learner.seeds and (learner.name, task.env, task.steps, seed) not in held:
                    yield learner, task, seed


def run_one(learner: Learner, task: Task, seed: int, root: Path) -> dict[str, Any]:
    """Train one seed in its own process."""
    python = sys.executable if learner.environment is None else str(root / learner.environment / "bin" / "python")
    script = [python, str(SCRIPTS / learner.script), *learner.arguments, task.env, str(task.steps), str(seed)]
    done = subprocess.run(script, env=as_users_have_it(), capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{learner.name} failed on {task.env}, seed {seed}: {last}. All runs before it are kept.")
    about = {"learner": learner.name, "env": task.env, "asked": task.steps, "seed": seed}
    found = json.loads(done.stdout.splitlines()[-1])
    return {**about, **({"settings": ours()} if learner.name == OURS else {}), **found}


def learning(
    root: Path,
    folder: Path,
    tell: Tell,
    tasks: Sequence[Task] = TASKS,
    learners: Sequence[Learner] = LEARNERS,
    measure: bool = True,
) -> BenchTable:
    """Measure what is missing in the file of `folder`, and make the table. A library that is not installed is left out.

    `measure=False`: only make the table of the stored runs.
    """
    installed = [one for one in learners if one.environment is None or (root / one.environment / "bin" / "python").exists()]
    there = installed if measure else []
    file = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    for learner, task, seed in missing(stored(file), tasks, there):
        tell(f"{learner.name} on {task.env}, seed {seed}")
        done = run_one(learner, task, seed, root)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(done) + "\n")
    return table(stored(file), tasks, learners)


def means(runs: Sequence[Mapping[str, Any]], learner: str, task: Task, actions: str = "sampled") -> np.ndarray:
    """The mean return of each seed over its new episodes."""
    mine = [run for run in runs if run["learner"] == learner and run["env"] == task.env and run["asked"] == task.steps]
    return np.array([np.mean(run[actions]) for run in sorted(mine, key=lambda run: run["seed"])])


def overall(
    runs: Sequence[Mapping[str, Any]], learner: str, tasks: Sequence[Task], actions: str = "sampled"
) -> Interval | None:
    """The interquartile mean of all scores, with an interval that resamples the seeds of each task. None if one is missing."""
    groups = [np.array([task.score(x) for x in means(runs, learner, task, actions)]) for task in tasks]
    if not all(len(group) for group in groups):
        return None
    return stratified(groups, iqm, stream("learning", learner, actions))


def table(runs: Sequence[Mapping[str, Any]], tasks: Sequence[Task], learners: Sequence[Learner]) -> BenchTable:
    """A row for each task and learner, with the mean return of each seed; and the interquartile mean over tasks."""
    rows = []
    for task in tasks:
        for learner in learners:
            found = means(runs, learner.name, task)
            if len(found) == 0:
                continue
            cpu = [run["cpu_seconds"] for run in runs if run["learner"] == learner.name and run["env"] == task.env]
            about = {
                "mean": float(found.mean()),
                "score": task.score(float(found.mean())),
                "mean of modes": float(means(runs, learner.name, task, "mode").mean()),
                "CPU seconds": min(cpu),  # of the fastest seed: other work on the machine only adds to it
            }
            rows.append(Row(f"{task.env}, {learner.name}", found.tolist(), about))
    for learner in learners:
        both = [overall(runs, learner.name, tasks, actions) for actions in ("sampled", "mode")]
        if both[0] is not None and both[1] is not None:
            low, middle, high = (float(x) for x in (both[0].low, both[0].estimate, both[0].high))
            rows.append(Row(f"{EVERY}, {learner.name}", [low, middle, high], {"mean of modes": float(both[1].estimate)}))
    note = (
        "20 new episodes of each seed, with sampled actions; modes: with the most likely ones. Score: 0 for random actions, 1 "
        f"for the best known figure. {EVERY}: the interquartile mean of all scores, with its 95% interval."
    )
    return BenchTable("learning", "What is learned at equal environment steps", "return", rows, note)


EVERY = "all tasks"
LOWEST = -0.5  # the left end of the plot: lower scores are arrows there


def markdown(table: Mapping[str, Any], tasks: Sequence[Task] = TASKS, learners: Sequence[Learner] = LEARNERS) -> str:
    """The table of a stored result for the README: a row for each task, a column for each learner."""
    rows = {row["name"]: row for row in table["rows"]}
    shown = [one for one in learners if any(f"{task.env}, {one.name}" in rows for task in tasks)]
    lines = [f"| task, steps | {' | '.join(one.name for one in shown)} |", f"|{' --- |' * (len(shown) + 1)}"]
    for task in tasks:
        mine = [rows.get(f"{task.env}, {one.name}") for one in shown]
        best = max((row["mean"] for row in mine if row), default=0.0)
        texts = [
            "" if row is None else f"{row['mean']:.0f}" if abs(row["mean"]) >= 20 else f"{row['mean']:.1f}" for row in mine
        ]
        texts = [f"**{text}**" if row and row["mean"] == best else text for row, text in zip(mine, texts, strict=True)]
        lines.append(f"| {task.env}, {task.steps:,} | {' | '.join(texts)} |")
    every = [rows.get(f"{EVERY}, {one.name}") for one in shown]
    texts = ["" if r is None else f"{r['values'][1]:.2f} ({r['values'][0]:.2f} to {r['values'][2]:.2f})" for r in every]
    lines.append(f"| interquartile mean of all scores | {' | '.join(texts)} |")
    found = [[rows[name] for task in tasks if (name := f"{task.env}, {one.name}") in rows] for one in shown]
    cpu = [sum(row["CPU seconds"] for row in x) for x in found]
    lines.append(f"| CPU seconds of all tasks | {' | '.join(f'{x:,.0f}' for x in cpu)} |")
    seeds = [sorted({len(row["values"]) for row in x}) for x in found]
    lines.append(f"| seeds | {' | '.join(' to '.join(map(str, x[:1] + x[1:][-1:])) for x in seeds)} |")
    return "\n".join(lines)


def plot(axes: Any, table: Mapping[str, Any], tasks: Sequence[Task] = TASKS, learners: Sequence[Learner] = LEARNERS) -> None:
    """Scores of all seeds as points, a line for each task; the bar is their mean. Arrows: below the plot."""
    from stormpg.report.palette import styles

    rows = {row["name"]: row for row in table["rows"]}
    names = [*(task.env for task in tasks), EVERY]
    looks = styles(learner.name for learner in learners)
    for place, learner in enumerate(learners):
        colour = looks[learner.name].colour
        for line, task in enumerate([*tasks, None]):
            row = rows.get(f"{names[line]}, {learner.name}")
            if row is None:
                continue
            y = line + 0.13 * (place - (len(learners) - 1) / 2)
            scores = row["values"] if task is None else [task.score(x) for x in row["values"]]
            middle = scores[1] if task is None else np.mean(scores)
            label = learner.name if line == 0 else None
            axes.plot([max(middle, LOWEST)], [y], "|", color=colour, markersize=9, markeredgewidth=2.5, label=label)
            if task is None:
                axes.plot(scores, [y] * len(scores), "-", color=colour, alpha=0.6)
                continue
            for marker, shown in (("o", [x for x in scores if x >= LOWEST]), ("<", [LOWEST for x in scores if x < LOWEST])):
                axes.plot(shown, [y] * len(shown), marker, color=colour, markersize=3 if marker == "o" else 5, alpha=0.6)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color="0.7", linewidth=0.8)
    axes.legend(frameon=False, fontsize=8, loc="lower center", ncols=len(learners), bbox_to_anchor=(0.5, 1.0))
