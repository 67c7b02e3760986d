"""The result of a training run: the table of its iterations, its states and its policies."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.engine.budget import LIMIT, Budget
from stormpg.engine.iteration import State
from stormpg.engine.metrics import Row
from stormpg.envs.base import AnyEnvironment
from stormpg.errors import InputError, choose
from stormpg.pytrees import Tree
from stormpg.report.card import in_words, result_card
from stormpg.runs.run_folder import ITERATES
from stormpg.runs.table import WINDOW, Columns, mean_return


class Progress(NamedTuple):
    """The progress of a training run after a chunk."""

    trajectories: int  # per seed
    budget: int  # of trajectories, per seed
    mean_return: float  # of the last recorded iteration, over the seeds in the chunk
    diverged: int
    seconds: float
    steps: int  # of the environment, total over all seeds
    step_budget: int | None  # per seed; None: there is no budget of steps
    result: "Callable[[], Result]"  # returns the progress so far, as a `Result` that is not complete
    runs: int = 1  # that `steps` is the total of


class Watch:
    """Combines the reports of several blocks of runs into one `Progress`."""

    def __init__(
        self, budget: Budget, began: float, progress: Callable[[Progress], Any] | None, result: "Callable[[], Result]"
    ) -> None:
        self.budget, self.began, self.progress, self.result = budget, began, progress, result
        self.lock, self.blocks = threading.Lock(), dict[int, State]()

    def report(self, block: int, states: State, rows: Row) -> Any:
        """Report the progress of a block. Returns what the `progress` function returns."""
        if self.progress is None:
            return None
        with self.lock:
            self.blocks[block] = states
            every = list(self.blocks.values())
            now = Progress(
                min(int(np.asarray(s.trajectories).min()) for s in every),
                self.budget.trajectories,
                float(np.nanmean(rows.mean_return[-1])),
                sum(int(np.asarray(s.diverged).sum()) for s in every),
                time.perf_counter() - self.began,
                sum(int(np.asarray(s.steps).sum(dtype=np.int64)) for s in every),
                None if self.budget.steps == LIMIT else self.budget.steps,
                self.result,
                sum(int(np.asarray(s.trajectories).size) for s in every),
            )
            return self.progress(now)


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """The result of a training run of one or several settings, each with every seed."""

    env: AnyEnvironment
    algorithms: tuple[Algorithm, ...]
    policies: tuple[Any, ...]
    seeds: tuple[int, ...]
    horizon: int
    trajectories: int
    columns: Columns
    states: State  # leading axis: run = setting · seeds + seed
    seconds: float
    complete: bool = True  # False: stopped before its budget was used up

    def __repr__(self) -> str:
        return f"Result({in_words(self)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: learning curves, returns with their interval, seeds and settings."""
        return result_card(self, WINDOW)

    @property
    def metrics(self) -> Any:
        """The table of all iterations: a polars DataFrame, or plain columns on a machine without polars."""
        try:
            import polars
        except ImportError:
            return dict(self.columns)
        return polars.DataFrame(dict(self.columns))

    def params(self, which: str = "last", seed: int | None = None, setting: int = 0) -> Tree:
        """The parameters ξ of one seed: the last iterate, Algorithm 1's uniformly drawn one, or the one with the best batch."""
        attribute = {"last": "params", "uniform": "uniform", "best": "best"}[choose("iterate", which, ITERATES)]
        if seed is not None and seed not in self.seeds:
            raise InputError(f"seed is {seed}; this run has the seeds {str(list(self.seeds))[:80]}.")
        position = setting * len(self.seeds) + (0 if seed is None else self.seeds.index(seed))
        return jax.tree.map(lambda x: x[position], getattr(self.states, attribute))

    def final_return(self, window: int = WINDOW) -> np.ndarray:
        """The mean return of each run over its last `window` trajectories, [settings, seeds]; NaN for a run without any."""
        first = self.columns["iteration"] == 0
        place = {seed: number for number, seed in enumerate(self.seeds)}
        final = np.full((len(self.algorithms), len(self.seeds)), np.nan)
        if first.any():
            final[self.columns["setting"][first], [place[s] for s in self.columns["seed"][first].tolist()]] = mean_return(
                self.columns, window
            )
        return final
