"""What a training run leaves: the table of its iterations, its states, its policies."""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.envs.base import AnyEnvironment
from stormpg.errors import choose
from stormpg.iteration import Row, State
from stormpg.records import Tree
from stormpg.store import ITERATES


class Progress(NamedTuple):
    """How far a run is, after a chunk."""

    trajectories: int  # a seed
    budget: int
    mean_return: float  # of the iteration recorded last, over the seeds in the chunk
    diverged: int
    seconds: float


class Watch:
    """Turns the reports of several blocks of runs into one progress."""

    def __init__(self, budget: int, began: float, progress: Callable[[Progress], Any] | None, stop: threading.Event) -> None:
        self.budget, self.began, self.progress, self.stop = budget, began, progress, stop
        self.lock, self.blocks = threading.Lock(), dict[int, State]()

    def report(self, block: int, states: State, rows: Row) -> None:
        """What a block has reached. Where `progress` returns False, all of them stop."""
        if self.progress is None:
            return
        with self.lock:
            self.blocks[block] = states
            done = min(int(s.trajectories.min()) for s in self.blocks.values())
            diverged = sum(int(s.diverged.sum()) for s in self.blocks.values())
            seconds = time.perf_counter() - self.began
            now = Progress(done, self.budget, float(np.nanmean(rows.mean_return[-1])), diverged, seconds)
            if self.progress(now) is False:
                self.stop.set()


def columns(env: str, algorithms: Sequence[Algorithm], seeds: Sequence[int], rows: Row) -> dict[str, np.ndarray]:
    """The rows of all runs as one table, run after run, iteration after iteration.

    `trajectories` and `steps` count everything sampled up to and including the iteration; `setting` numbers the
    algorithms of a batch.
    """
    rows = Row(*(part.T for part in rows))  # [runs, iterations]
    live = rows.live
    run, iteration = np.nonzero(live)[0], (np.cumsum(live, axis=1) - 1)[live]
    names = np.array([a.name for a in algorithms])[run // len(seeds)]
    return {
        "env": np.full(len(run), env),
        "algorithm": names,
        "setting": run // len(seeds),
        "seed": np.array(seeds)[run % len(seeds)],
        "iteration": iteration,
        "large": rows.large[live],
        "trajectories": np.cumsum(rows.batch * live, axis=1, dtype=np.int64)[live],
        "steps": np.cumsum(rows.steps * live, axis=1, dtype=np.int64)[live],
        "return": rows.mean_return[live],
        "discounted_return": rows.discounted_return[live],
        "gradient_norm": rows.gradient_norm[live],
        "weight_mean": rows.weight_mean[live],
        "weight_max": rows.weight_max[live],
        "effective_sample_size": rows.effective_sample_size[live],
        "diverged": rows.diverged[live],
    }


def extend(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A table with what followed it: the counts of every run go on where they ended."""
    after = dict(after)
    for name in ("iteration", "trajectories", "steps"):
        last = {
            (setting, seed): count + (name == "iteration")
            for setting, seed, count in zip(before["setting"], before["seed"], before[name], strict=True)
        }  # the rows of a run are in order, so the last one stays
        after[name] = after[name] + np.array([last[run] for run in zip(after["setting"], after["seed"], strict=True)], int)
    whole = {name: np.concatenate((before[name], after[name])) for name in before}
    seeds = list(dict.fromkeys(before["seed"]))
    order = np.lexsort((whole["iteration"], np.array([seeds.index(s) for s in whole["seed"]]), whole["setting"]))
    return {name: column[order] for name, column in whole.items()}


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished training run of one or several settings, each with every seed."""

    env: AnyEnvironment
    algorithms: tuple[Algorithm, ...]
    policies: tuple[Any, ...]
    seeds: tuple[int, ...]
    horizon: int
    trajectories: int
    columns: Mapping[str, np.ndarray]
    states: State  # leading axis: run = setting · seeds + seed
    seconds: float
    complete: bool = True  # False: it was stopped before its budget was spent

    @property
    def metrics(self) -> Any:
        """The table of all iterations: a polars DataFrame, or plain columns on a machine without polars."""
        try:
            import polars
        except ImportError:
            return dict(self.columns)
        return polars.DataFrame(dict(self.columns))

    def params(self, which: str = "last", seed: int | None = None, setting: int = 0) -> Tree:
        """ξ of one seed: the last iterate, Algorithm 1's uniformly drawn one, or the one with the best batch."""
        attribute = {"last": "params", "uniform": "uniform", "best": "best"}[choose("iterate", which, ITERATES)]
        position = setting * len(self.seeds) + (0 if seed is None else self.seeds.index(seed))
        return jax.tree.map(lambda x: x[position], getattr(self.states, attribute))

    def final_return(self, window: int = 50) -> np.ndarray:
        """The mean return of each run over its last `window` trajectories, [settings, seeds]."""
        table, runs = self.columns, len(self.algorithms) * len(self.seeds)
        run = table["setting"] * len(self.seeds) + np.array([self.seeds.index(s) for s in table["seed"]])
        final = np.zeros(runs)
        for r in range(runs):
            mine = run == r
            after, value = table["trajectories"][mine], table["return"][mine]
            size = np.diff(after, prepend=0)
            weight = np.clip(size - np.maximum(after[-1] - window - (after - size), 0), 0, None)
            final[r] = (weight * value).sum() / weight.sum()
        return final.reshape(len(self.algorithms), len(self.seeds))
